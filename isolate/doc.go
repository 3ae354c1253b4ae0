// Package isolate runs programs in containers, which may see and do only what a [Spec] allows.
//
// # Life of a container
//
//	Start(spec, command) ─► container, its first process
//	    Exec(command) ────► one more process in it, any number of times
//	    Freeze / Thaw ────► every process stops, and continues
//	    Idle ─────────────► the last process has ended
//	    Close ────────────► every process and mount of it is gone
//
// A container lives as long as the program that started it, its supervisor: however the supervisor ends, the
// kernel then kills every process inside.
//
// # How it works
//
// A container is a set of namespaces and a pid 1. Pid 1 is a copy of the supervisor that never runs a line of
// Go: it executes a prepared list of system calls (package launch), creates the mounts (package mounts),
// drops its privileges,
// and then forks commands on request and reports the end of each. Every process in a container descends from
// it, so none can have a privilege that pid 1 dropped. No process of the host ever enters a container, so none
// can be attacked half-way in.
//
// # What it does not promise
//
// Processes share the kernel with the host: a bug in the kernel's own checks is a way out. With [NetworkHost]
// they share the host's network and all that listens there. [Spec.Rlimits] bound the resources of a single
// process, and the cgroups that the caller passes bound the rest; isolate itself sets no other limit.
//
// A container can break itself: a process that runs as pid 1's user may take away pid 1's descriptors
// (prlimit(2)). Every later Exec then fails with "too many open files" until the container is started anew. No
// other container is affected.
//
// # Where to start
//
// Read [Spec], [Prepare] and [Container] first; pid1.go has the loop of pid 1. The package must know neither
// snapshots
// nor cgroup limits nor network rules: the engine passes mounts, cgroups and a TUN reader.
package isolate
