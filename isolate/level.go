package isolate

import (
	"fmt"
	"strings"
)

// Level is what is really in force in a box, as opposed to what was asked for.
type Level struct {
	// IDs is the mapping of users.
	IDs IDs
	// Network is what the box is connected to.
	Network Network
	// Namespaces by the names of /proc/PID/ns: user, mnt, pid, ...
	Namespaces []string
	// Capabilities that root inside keeps, over the box's own namespaces only.
	Capabilities []string
	// NoNewPrivs: set-id bits and file capabilities give nothing.
	NoNewPrivs bool
	// Seccomp: the system call filter is loaded.
	Seccomp bool
	// Landlock is the kernel's ABI, 0 without. A box uses it from 6 on.
	Landlock int
	// Scopes are what Landlock keeps inside: "abstract unix sockets", "signals".
	Scopes []string
	// Cgroups is how many cgroups the box has entered.
	Cgroups int
	// Shifted are the targets of trees that a process shows, because their
	// filesystem cannot be id-mapped: as apart from the host's users as others, and slower.
	Shifted []string
	// Missing names what could not be had; empty unless [Spec.BestEffort].
	Missing []string
}

// String is one line that says it all.
func (l Level) String() string {
	parts := []string{
		"ids " + l.IDs.String(),
		"network " + string(l.Network),
		"namespaces " + strings.Join(l.Namespaces, ","),
		"capabilities " + list(l.Capabilities),
	}
	if l.exposed() {
		parts[1] += " with its abstract unix sockets"
	}
	if l.NoNewPrivs {
		parts = append(parts, "no_new_privs")
	}
	if l.Seccomp {
		parts = append(parts, "seccomp")
	}
	if len(l.Scopes) > 0 {
		parts = append(parts, fmt.Sprintf("landlock %d (%s)", l.Landlock, strings.Join(l.Scopes, ", ")))
	}
	if l.Cgroups > 0 {
		parts = append(parts, fmt.Sprintf("cgroups %d", l.Cgroups))
	}
	if len(l.Shifted) > 0 {
		parts = append(parts, "shown by a process "+strings.Join(l.Shifted, ","))
	}
	if len(l.Missing) > 0 {
		parts = append(parts, "missing "+strings.Join(l.Missing, ","))
	}
	return strings.Join(parts, "; ")
}

// exposed reports whether the host's abstract sockets, which belong to its network,
// are within reach: what connects to one cannot be told apart by a filter of calls.
func (l Level) exposed() bool { return l.Network == NetworkHost && len(l.Scopes) == 0 }

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
