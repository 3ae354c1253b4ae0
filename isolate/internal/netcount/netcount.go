// Package netcount reads the counters of a network namespace in /proc/PID/net/snmp and snmp6.
package netcount

import (
	"slices"
	"strings"
)

// Unreached reports whether counters, the text of the kernel's network counters, hold packets without a
// route, or datagrams to a port of the container that nothing listens on, as of a local name server. The
// counters are lines of values that each follow a line of names, or, for IPv6, lines of a name and a value.
func Unreached(counters string) bool {
	counts := func(name, value string) bool {
		return value != "0" && slices.Contains([]string{"OutNoRoutes", "NoPorts", "Ip6OutNoRoutes", "Udp6NoPorts"}, name)
	}
	var names []string
	for line := range strings.Lines(counters) {
		f := strings.Fields(line)
		if len(f) == 2 && counts(f[0], f[1]) {
			return true
		}
		if len(names) == 0 || len(f) != len(names) || f[0] != names[0] {
			names = f
			continue
		}
		for i, name := range names {
			if counts(name, f[i]) {
				return true
			}
		}
	}
	return false
}
