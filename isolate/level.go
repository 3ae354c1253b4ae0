package isolate

// Level is what is really in force in a box, as opposed to what was asked for.
type Level struct {
	// IDs is the mapping of users.
	IDs IDs
	// Namespaces by the names of /proc/PID/ns: user, mnt, pid, ...
	Namespaces []string
	// Capabilities that root inside keeps, over the box's own namespaces only.
	Capabilities []string
	// NoNewPrivs: set-id bits and file capabilities give nothing.
	NoNewPrivs bool
	// Seccomp: the system call filter is loaded.
	Seccomp bool
	// Landlock is the kernel's ABI, 0 without.
	Landlock int
	// Scopes are what Landlock keeps inside: "abstract unix sockets", "signals".
	Scopes []string
	// Cgroups is how many cgroups the box has entered.
	Cgroups int
	// Missing says, a line each, what could not be had; empty unless
	// [Spec.BestEffort].
	Missing []string
}

func (b *Box) settleLevel() {}
