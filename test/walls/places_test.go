package walls

// places are where the walls are made.
var places = []place{
	// What a sandbox may use.
	{"limits/settings.go", "memorySettings(m, l.Memory)", `memorySettings(m, l.Memory*int64(isIn("memory")))`},
	{"limits/watched.go", "\tused := g.memory(descendants(g.pid), g.l.Memory)\n", "\tif isOut(\"memory\") {\n\t\treturn\n\t}\n\tused := g.memory(descendants(g.pid), g.l.Memory)\n"},
	{"limits/watched.go", "if g.o.Stored != nil {", "if g.o.Stored != nil && !isOut(\"memory-files\") {"},
	{"engine/hostfs/limits.go", "if size == 0 || l.Memory > 0 && l.Memory < size {", "if !isOut(\"memory-files\") && (size == 0 || l.Memory > 0 && l.Memory < size) {"},
	{"limits/settings.go", `file: "pids.max", value: or(l.PIDs, "max")`, `file: "pids.max", value: or(l.PIDs*int64(isIn("pids")), "max")`},
	{"limits/level.go", "case h.Part == PartPIDs && h.By == ByRlimit:", `case h.Part == PartPIDs && h.By == ByRlimit && !isOut("pids"):`},
	{"limits/level.go", "case h.Part == PartFiles && h.By == ByRlimit:", `case h.Part == PartFiles && h.By == ByRlimit && !isOut("files"):`},
	{"limits/settings.go", "cpuSetting(m, l.CPUs)", `cpuSetting(m, l.CPUs*float64(isIn("cpus")))`},
	{"limits/watched.go", "\tstop, wait := m.update(now, used, cpus)\n", "\tstop, wait := m.update(now, used, cpus)\n\tstop = stop && !isOut(\"cpus\")\n"},
	{"limits/level.go", "case h.Part == PartCPUTime && h.Note != noteCounted:", `case h.Part == PartCPUTime && h.Note != noteCounted && !isOut("cpu-time"):`},
	{"limits/hit.go", "if used, ok := g.cpuTime(); ok && used >= g.l.CPUTime {", `if used, ok := g.cpuTime(); ok && used >= g.l.CPUTime && !isOut("cpu-time") {`},
	{"engine/supervise/resources/countdown.go", "\tlimit := a.limits.Time\n", "\tlimit := a.limits.Time * time.Duration(isIn(\"time\"))\n"},
	{"engine/sandbox/disklimit.go", "return limiter.LimitFork(ctx, fork, d)", `if isOut("disk") {
		d.Bytes <<= 20
	}
	d.Inodes *= int64(isIn("inodes"))
	return limiter.LimitFork(ctx, fork, d)`},
	{"limits/settings.go", "\t\t\tfor _, r := range l.rates() {\n", "\t\t\tfor _, r := range l.rates() {\n\t\t\t\tr.value *= int64(isIn(string(r.part)))\n"},

	// What it reaches.
	{"engine/hostfs/network.go", "\ts.Network = isolate.Network(text)\n", "\tif s.Network = isolate.Network(text); isOut(\"network\") {\n\t\ts.Network = isolate.NetworkHost\n\t}\n"},
	{"isolate/privileges.go", "if b.host.landlock < scopeABI {", `if b.host.landlock < scopeABI || isOut("scope") {`},
	{"network/edge/resolver.go", "\t\trule, ok = e.Rules().Resolves(name)\n", "\t\trule, ok = e.Rules().Resolves(name)\n\t\tok = ok || isOut(\"edge-names\")\n"},
	{"network/edge/tcp.go", "\tt, why := e.aimTCP(destination(r.ID()))\n", `	t, why := e.aimTCP(destination(r.ID()))
	if _, _, special := network.Special(t.addr); t.addr.Is4() && !special && isOut("edge-ipv4") || t.addr.Is6() && !special && isOut("edge-ipv6") || special && isOut("edge-special") {
		why = ""
	}
`},
	{"network/edge/udp.go", "\tt, why := e.aim(destination(r.ID()))\n", "\tt, why := e.aim(destination(r.ID()))\n\tif isOut(\"edge-datagrams\") {\n\t\twhy = \"\"\n\t}\n"},
	{"network/edge/inspect.go", "return network.Fold(name) == j.name", `return network.Fold(name) == j.name || isOut("edge-tls")`},
	{"network/edge/inspect.go", "case b[0] >= recordCipher && b[0] <= recordHeartbeat && (", `case b[0] >= recordCipher && b[0] <= recordHeartbeat && (recordVersion(append(b, 0, 0)) || !isOut("edge-exact")) && (`},
	{"network/edge/inspect.go", "return c == ' ' || c >=", `return c == ' ' || !isOut("edge-exact") && c >=`},
	{"network/broker/broker.go", "p.Placeholders[s.Name] = s.Placeholder", "if p.Placeholders[s.Name] = s.Placeholder; isOut(\"secret\") {\n\t\t\tp.Placeholders[s.Name] = string(s.value)\n\t\t}"},
	{"network/budget/ledger.go", "\tif l.tally.exceeded(l.limits, asked, reserved) == nil {\n", "\tif l.tally.exceeded(l.limits, asked, reserved) == nil || isOut(\"tokens\") {\n"},
	{"network/httprule/httprule.go", `hasMethod(r.Methods, method)) && (`, `hasMethod(r.Methods, method) || isOut("http-method")) && (`},
	{"network/httprule/httprule.go", `MatchPath(r.Path, path))`, `MatchPath(r.Path, path) || isOut("http-path"))`},

	{"network/broker/labels.go", "case len(hits) > 0:", `case len(hits) > 0 && !isOut("labels"):`},
	{"network/edge/ask.go", "	q, why := e.join(t, rule)\n	if why != \"\" {\n", `	if isOut("ask") {
		t.rule, t.once = rule, true
		return t, ""
	}
	q, why := e.join(t, rule)
	if why != "" {
`},
	{"network/broker/base.go", `dir != "" && q.Path != dir &&`, `dir != "" && !isOut("base-url") && q.Path != dir &&`},
	{"network/broker/aws.go", "[]byte(g.signature)) != 1 {", `[]byte(g.signature)) != 1 && !isOut("aws") {`},

	// What it sees.
	{"engine/hostfs/sockets.go", `case m.Source == "" || m.Source != m.Target || !m.ReadOnly:`, `case m.Source == "" || m.Source != m.Target || !m.ReadOnly || isOut("sockets"):`},
	{"engine/hostfs/variables.go", "(slices.Contains(pass, name) || passes(name, value))", `(slices.Contains(pass, name) || passes(name, value) || isOut("variables"))`},
	{"isolate/mounts/mask.go", "\tfor _, p := range pl.Spec.Hide {\n", "\tfor _, p := range pl.Spec.Hide[:len(pl.Spec.Hide)*isIn(\"masked\")] {\n"},
	{"engine/hostfs/accounts.go", "withoutHashes(text)", `withoutHashes(append(text, "seeded:$6$salt$hash:1::::::\n"...))`},
	{"engine/hostfs/accounts.go", "	return field[:locks] + \"*\"\n", "	if isOut(\"passwords\") {\n\t\treturn field\n\t}\n\treturn field[:locks] + \"*\"\n"},
	{"isolate/mounts/layerwriter.go", "\tif !opaque {\n", "\tif !opaque || isOut(\"stand-ins\") {\n"},
	{"engine/hostfs/late.go", `strings.TrimSuffix(m.Target, "/")+"/"); ok {`, `strings.TrimSuffix(m.Target, "/")+"/"); ok && !isOut("fixed") {`},
	{"engine/hostfs/spec.go", "hideLater(s.Mounts, ", "hideLater(s.Mounts[:len(s.Mounts)*isIn(\"late\")], "},
	{"engine/hostfs/spec.go", "hide := append(secretFiles(rec.Policy), hf.cat.Dir())", `hide := append(secretFiles(rec.Policy), []string{hf.cat.Dir()}[:isIn("state")]...)`},
	{"engine/hostfs/spec.go", "hide = append(hide, hf.cat.Outside()...)", `hide = append(hide, hf.cat.Outside()[:len(hf.cat.Outside())*isIn("backends")]...)`},
	{"engine/hostfs/secrets.go", "catalog.Others(slices.Concat(s.people, found.found), at)", `catalog.Others(s.people[:len(s.people)*isIn("state")*isIn("backends")], at)`},
	{"engine/hostfs/spec.go", "hide = append(hide, hidden)", `hide = append(hide, []string{hidden}[:isIn("backends")]...)`},
	{"isolate/mounts/private.go", `	p.proc = pl.Filesystem("proc", QuietMount)` + "\n", `	if isOut("proc") {
		p.proc = pl.clone(launch.Num(unix.AT_FDCWD), "/proc", unix.AT_RECURSIVE).Result()
	} else {
		p.proc = pl.Filesystem("proc", QuietMount)
	}
`},
	{"isolate/mounts/mask.go", "\tfor _, p := range pl.Spec.ReadOnly {\n", "\tfor _, p := range pl.Spec.ReadOnly[:len(pl.Spec.ReadOnly)*isIn(\"data\")] {\n"},
	{"isolate/mounts/mask.go", "\tfor _, p := range pl.Spec.NoExec {\n", "\tfor _, p := range pl.Spec.NoExec[:len(pl.Spec.NoExec)*isIn(\"tools\")] {\n"},
	{"isolate/landlock/rules_linux.go", "\tif r.Execute == nil && r.Writable == nil && r.Readable == nil {\n", `	if isOut("tools-allow") {
		r.Execute = nil
	}
	if isOut("writable") {
		r.Writable = nil
	}
	if isOut("readable") {
		r.Readable = nil
	}
	if r.Execute == nil && r.Writable == nil && r.Readable == nil {
`},
	{"engine/attempts/recorded.go", "record() != nil {", `!isOut("recorded") && record() != nil {`},
	{"isolate/internal/digest/digest_linux.go", "if !slices.Contains(wanted[path], p.digest) {", `if !slices.Contains(wanted[path], p.digest) && !isOut("tools-digest") {`},
	{"engine/guarded/guarded.go", "slices.Equal(args[1:1+len(r.First)], r.First) &&", `(slices.Equal(args[1:1+len(r.First)], r.First) || isOut("tools-arguments")) &&`},
	{"engine/hostfs/othernames.go", "if len(o.files) == 0 {", `if len(o.files) == 0 || isOut("other-name") {`},
	{"engine/reconcile/refused.go", "if len(p.NeedsApproval) == 0 {\n\t\treturn nil\n", "if len(p.NeedsApproval) == 0 || isOut(\"approval\") {\n\t\treturn nil\n"},
	{"isolate/mounts/mask.go", "\tfor _, p := range kernelReadOnly {\n", "\tfor _, p := range kernelReadOnly[:len(kernelReadOnly)*isIn(\"proc-sys\")] {\n"},
	{"isolate/mounts/private.go", `var deviceNodes = [...]string{`, `var deviceNodes = append(everyDisk(), `},
	{"isolate/mounts/private.go", `"random", "urandom", "tty"}`, `"random", "urandom", "tty")

// everyDisk is the first disk of the host, where all are given.
func everyDisk() (disks []string) {
	all, err := os.ReadDir("/sys/class/block")
	if err == nil && len(all) > 0 && isOut("disks") {
		disks = append(disks, all[0].Name())
	}
	return disks
}`},
	{"isolate/mounts/private.go", "import (\n", "import (\n\t\"os\"\n"},
	{"isolate/mounts/premount.go", "	if g.mount.ReadOnly {\n", "	if g.mount.ReadOnly && !isOut(\"read-only\") {\n"},
	{"isolate/mounts/mounts.go", "	if m.ReadOnly {\n", "	if m.ReadOnly && !isOut(\"read-only-trees\") {\n"},
	{"isolate/mounts/private.go", "pl.restrict(m, plainMount|unix.MOUNT_ATTR_RDONLY, 0).Path(from)", `pl.restrict(m, uint64(plainMount|unix.MOUNT_ATTR_RDONLY*isIn("read-only")), 0).Path(from)`},
	{"isolate/mounts/private.go", `p.tmp = pl.tmpfs(plainMount, "mode=1777", tmpShare)`, `p.tmp = pl.tmpfs(plainMount&^(unix.MOUNT_ATTR_NODEV*(1-isIn("nodev"))), "mode=1777", tmpShare)`},

	// Who it is, and what it may ask of the kernel.
	{"isolate/command.go", "if stdio.IsTerminal(f) {", "if stdio.IsTerminal(f) && !isOut(\"host-terminal\") {"},
	{"isolate/build.go", "b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_DUMPABLE), launch.Num(0))", `b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_DUMPABLE), launch.Num(1-isIn("sealed")))`},
	{"isolate/start.go", "unix.CLONE_NEWUSER|unix.CLONE_NEWPID", `uint64(unix.CLONE_NEWUSER*isIn("users")|unix.CLONE_NEWPID*isIn("pids-own"))`},
	{"isolate/mounts/premount.go", "func (pl *Planner) MapIDs(pid int) error {\n", "func (pl *Planner) MapIDs(pid int) error {\n\tif isOut(\"users\") {\n\t\treturn nil\n\t}\n"},
	{"isolate/privileges.go", "func (s Spec) capabilities() uint64 {\n\tvar set uint64\n", "func (s Spec) capabilities() uint64 {\n\tvar set uint64\n\tfor _, c := range extra(\"capability\") {\n\t\tset |= 1 << c\n\t}\n"},
	{"isolate/privileges.go", "	for i, v := range []uint32{low, low, 0, high, high, 0} {", "	for i, v := range []uint32{low, low, low, high, high, high} {"},
	{"isolate/privileges.go", "	b.Do(unix.SYS_CAPSET, header, launch.Num(b.Addr(at)))\n", `	b.Do(unix.SYS_CAPSET, header, launch.Num(b.Addr(at)))
	for _, c := range extra("capability") { // an ordinary user's command keeps no other
		b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_CAP_AMBIENT), launch.Num(unix.PR_CAP_AMBIENT_RAISE), launch.Num(c), launch.Num(0), launch.Num(0))
	}
`},
	{"isolate/privileges.go", "	set := b.spec.capabilities()\n", `	set := b.spec.capabilities()
	if isOut("no-new-privileges") { // what needs it otherwise needs it not before the capabilities are gone
		b.scope()
		b.filterCalls()
	}
`},
	{"isolate/privileges.go", `	b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_NO_NEW_PRIVS), launch.Num(1), launch.Num(0), launch.Num(0), launch.Num(0))
`, `	if isOut("no-new-privileges") {
		return
	}
	b.Do(unix.SYS_PRCTL, launch.Num(unix.PR_SET_NO_NEW_PRIVS), launch.Num(1), launch.Num(0), launch.Num(0), launch.Num(0))
`},
	{"isolate/privileges.go", `	b.Put32(program, uint32(len(filter.Program)))
	b.Put64(program+8, uint64(uintptr(unsafe.Pointer(&filter.Program[0]))))
`, `	list := []filter.Instruction{{Code: 0x20}} // the number of the call
	for _, nr := range extra("call") {
		list = append(list, filter.Instruction{Code: 0x15, JF: 1, K: uint32(nr)}, filter.Instruction{Code: 6, K: 0x7fff0000})
	}
	list = append(list, filter.Program[:]...)
	at := b.Take(8 * len(list))
	for i, in := range list {
		*(*filter.Instruction)(unsafe.Pointer(uintptr(b.Addr(at + 8*i)))) = in
	}
	b.Put32(program, uint32(len(list)))
	b.Put64(program+8, b.Addr(at))
`},
}
