//go:build linux

package edge

import (
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/snapfs/snapfs/network"
)

// hostsFile is the host's /etc/hosts. A program in the sandbox finds an address in its copy of the file and
// connects to it without a DNS query, so the proxy has to find the name.
const hostsFile = "/etc/hosts"

// maxHosts is how many bytes of /etc/hosts are read, for each connection that no rule allows by address.
// Names after them are not found.
const maxHosts = 256 << 10

// hostsName returns the first name that the host's /etc/hosts maps to addr and that rules
// allow on port, or "". The proxy then treats a connection to addr as one to that name. The
// sandbox's copy of the file has no effect.
func (e *Edge) hostsName(addr netip.Addr, port uint16) string {
	if e.options.Lookup != nil {
		return "" // names do not come from the host
	}
	f, err := os.Open(hostsFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHosts))
	if err != nil {
		return ""
	}
	return hostsNameIn(string(text), addr, port, e.Rules())
}

// hostsNameIn returns the first name that text, a file in the form of hosts(5), maps to addr and that the
// network rules r allow on port, or "".
func hostsNameIn(text string, addr netip.Addr, port uint16, r network.Rules) string {
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
