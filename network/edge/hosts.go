//go:build linux

package edge

import (
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/snapfs/snapfs/network"
)

// hostsFile is where the host keeps names of its own. A program inside finds them in its copy of the file, and then
// connects to the address without a word to the resolver.
const hostsFile = "/etc/hosts"

// mostHosts bounds what of the file is read, for each connection that no rule allows by its address.
const mostHosts = 256 << 10

// pinned is the first name that the host's own file has for addr and rules allow on port, or "". A
// connection to addr is then one to that name, and held to it. What the sandbox writes into its copy of the file counts for nothing.
func (e *Edge) pinned(addr netip.Addr, port uint16) string {
	if e.options.Lookup != nil {
		return "" // names are not the host's
	}
	f, err := os.Open(hostsFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostHosts))
	if err != nil {
		return ""
	}
	return pinnedIn(string(text), addr, port, e.Rules())
}

// pinnedIn reads a file as hosts(5) has it.
func pinnedIn(text string, addr netip.Addr, port uint16, r network.Rules) string {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if at, err := netip.ParseAddr(fields[0]); err != nil || at.Unmap() != addr.Unmap() {
			continue
		}
		for _, name := range fields[1:] {
			if _, ok := r.Name(name, port); ok && network.ValidName(network.Fold(name)) {
				return network.Fold(name)
			}
		}
	}
	return ""
}
