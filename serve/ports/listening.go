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

// Files are those of a sandbox's own /proc in which the kernel lists its sockets.
func Files() []string { return []string{"/proc/net/tcp", "/proc/net/tcp6"} }

// maxListening bounds the addresses that Listening returns.
const maxListening = 10_000

// Listening returns the addresses at which TCP servers listen, of the text of [Files], sorted by port. A line that the
// kernel does not write is left out.
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

// parse reads an address as the kernel writes it: words in the byte order of the processor, then a port.
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
