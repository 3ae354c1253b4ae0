//go:build linux

package isolate

import (
	"fmt"

	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/internal/netcount"
)

// Unreached reports whether a process in the container tried to reach another machine or to look up a name, for which a
// container without a network has no route. It returns false where the kernel's counters cannot be read, and after Close.
func (c *Container) Unreached() bool {
	for _, name := range []string{"snmp", "snmp6"} {
		if text, err := vfs.ReadFile(fmt.Sprintf("/proc/%d/net/%s", c.pid, name)); err == nil && netcount.Unreached(string(text)) {
			return true
		}
	}
	return false
}
