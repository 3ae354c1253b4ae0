package isolate

import (
	"fmt"
	"strings"
)

// A Level describes the protections that are in force in a container. With [Spec.BestEffort] they may be less
// than the Spec requires.
type Level struct {
	// IDs says which users of the host the users in the container are.
	IDs IDs
	// Network names the kind of network that the container has.
	Network Network
	// Namespaces are the new namespaces, by their names in /proc/PID/ns: user, mnt, pid, ...
	Namespaces []string
	// Capabilities are the capabilities of root in the container, over the container's own
	// namespaces only.
	Capabilities []string
	// NoNewPrivs is set if set-id bits and file capabilities have no effect.
	NoNewPrivs bool
	// Seccomp is set if the container's system call filter is loaded.
	Seccomp bool
	// Landlock is the version of the kernel's Landlock ABI, 0 without Landlock. A container
	// uses it from version 6 on.
	Landlock int
	// Scopes lists what Landlock confines to the container: "abstract unix sockets",
	// "signals".
	Scopes []string
	// Cgroups is the number of cgroups that the container entered.
	Cgroups int
	// FUSEMapped are the targets of trees whose ids a FUSE process maps, because their filesystem does not support
	// id-mapped mounts. They are as separate from the host's users as others, and slower.
	FUSEMapped []string
	// Missing names the protections that this host could not provide; empty unless
	// [Spec.BestEffort].
	Missing []string
}

// String returns all protections of the level as one line of text, for the user.
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
	if len(l.FUSEMapped) > 0 {
		parts = append(parts, "ids mapped by FUSE "+strings.Join(l.FUSEMapped, ","))
	}
	if len(l.Missing) > 0 {
		parts = append(parts, "missing "+strings.Join(l.Missing, ","))
	}
	return strings.Join(parts, "; ")
}

// exposed reports whether the container can reach the host's abstract sockets, which belong to the host's
// network. A system call filter cannot detect connections to them.
func (l Level) exposed() bool { return l.Network == NetworkHost && len(l.Scopes) == 0 }

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
