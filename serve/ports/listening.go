// Package ports finds the servers that listen in a sandbox, and passes HTTP requests on to them. Read [Listening] and
// [Proxy].
package ports

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Files returns the paths, in a sandbox's own /proc, of the files in which the kernel lists TCP sockets.
func Files() []string { return []string{"/proc/net/tcp", "/proc/net/tcp6"} }

// maxListening is the largest number of addresses that [Listening] returns, because its input comes from a
// sandbox. It leaves out further ones.
const maxListening = 10_000

// Listening returns the addresses at which TCP servers listen, sorted by port. text is the content of
// [Files]. It ignores a line that the kernel would not write, because the text comes from a sandbox.
func Listening(text string) []netip.AddrPort {
	const stateListen = "0A"
	var all []netip.AddrPort
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() && len(all) < maxListening {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != stateListen {
			continue
		}
		if at, ok := parse(fields[1]); ok {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(a.Port(), b.Port()), a.Addr().Compare(b.Addr()))
	})
	return slices.Compact(all)
}

// parse decodes an address and port as the kernel writes them in /proc/net/tcp, in hexadecimal: the address
// as words in the byte order of the processor, then the port. It returns false for any other text.
func parse(text string) (netip.AddrPort, bool) {
	words, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(words)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw) // it has a length that an address has
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), true
}
