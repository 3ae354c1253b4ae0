// Package prove tests the isolation of a sandbox from inside.
//
// A list of settings does not show that isolation works; an attempt to break it does. A [Probe] is one
// attempt, made by a separate process in the sandbox:
//
//	host                              sandbox
//	start the program ──────────────► Run(name, arguments, stdout)
//	Read(name, its output, …) ◄────── a line before the attempt, one after it
//
// An attempt that cannot be made counts as failed isolation. A probe does no harm without isolation: it
// exceeds a limit by a fixed amount and deletes what it created, and it makes only system calls that have no
// effect.
//
// Read [Probe], [Run] and [Report] first. The package must not know how a sandbox is made: it observes the
// kernel.
package prove
