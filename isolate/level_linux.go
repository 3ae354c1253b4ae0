package isolate

import "slices"

// Names of the protections that a container may lack under [Spec.BestEffort]: the filter of system calls, and
// the entry of pid 1 into a control group of version 1.
const (
	partSeccomp = "seccomp"
	partCgroup  = "cgroup"
)

// level returns the level of protection in force after pid 1 has succeeded: all that spec asks for, except
// the parts in missing. landlock is the kernel's Landlock ABI.
func (s Spec) level(landlock int, missing []string) Level {
	l := Level{
		IDs: s.IDs, Network: s.Network, NoNewPrivs: true, Landlock: landlock, Cgroups: len(s.Cgroups), Missing: missing,
		Namespaces: []string{"user", "mnt", "pid"}, Seccomp: !slices.Contains(missing, partSeccomp),
	}
	for _, ns := range unshared {
		hosts := ns.name == "net" && s.Network == NetworkHost
		if !hosts && !slices.Contains(missing, "namespace "+ns.name) {
			l.Namespaces = append(l.Namespaces, ns.name)
		}
	}
	if s.IDs != Same {
		for _, c := range keptCapabilities {
			l.Capabilities = append(l.Capabilities, c.name)
		}
	}
	if landlock >= scopeABI {
		l.Scopes = []string{"abstract unix sockets", "signals"}
	}
	for _, m := range missing {
		if m == partCgroup {
			l.Cgroups--
		}
	}
	return l
}

// missing returns the names of the protections that the container lacks, because the system calls for them
// failed and [Spec.BestEffort] allows that.
func (b *builder) missing() []string {
	var parts []string
	for _, s := range b.optionals {
		if b.Get(s.result) < 0 {
			parts = append(parts, s.part)
		}
	}
	return parts
}
