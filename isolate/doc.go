// Package isolate runs programs where they can see and do only what a [Spec]
// says.
//
// # Life of a box
//
//	Start(spec, command) ─► box, its first process
//	    Exec(command) ────► one more process in it, as often as wanted
//	    Freeze / Thaw ────► every process stands still, and goes on
//	    Idle ─────────────► the last process has ended
//	    Close ────────────► every process and mount of it is gone
//
// The box lives as long as the program that started it, its keeper: when the
// keeper ends, however it ends, the kernel kills everything inside.
//
// # How it is held together
//
// A box is a set of namespaces and a pid 1. That pid 1 is a copy of the
// keeper which never runs a line of Go: it works through a prepared list of
// system calls (image.go, run_linux_amd64.s), builds the mounts, gives up its powers,
// and then forks what it is asked for and reports what ended. Every process in
// a box descends from it, so none can have a power that pid 1 gave up, and no
// process of the host ever enters a box, so none can be caught half-way in.
//
// # What it does not promise
//
// Processes share the kernel with the host: an error in the kernel's own
// checks is a way out. With [NetworkHost] they share its network with all that
// listens there. How much of the machine they use is bounded by [Spec.Rlimits],
// a process at a time, and by the cgroups that they are given, not by itself.
//
// A box can spoil itself: what runs in it as pid 1's user may take pid 1 its
// descriptors (prlimit(2)), after which nothing more is started in it ("too many open
// files") until it has ended and is started anew. No other box notices.
package isolate
