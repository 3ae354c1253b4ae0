package isolate

import "slices"

// What a best effort may do without.
const (
	partSeccomp = "seccomp"
	partCgroup  = "cgroup"
)

// level is what is in force once pid 1 stands: everything asked for, for it
// would not stand otherwise, but the parts that missing names.
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
		for _, c := range kept {
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

// missing names the optional steps that went wrong.
func (b *builder) missing() []string {
	var parts []string
	for _, s := range b.soft {
		if b.get(s.result) < 0 {
			parts = append(parts, s.what)
		}
	}
	return parts
}
