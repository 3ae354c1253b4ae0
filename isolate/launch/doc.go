// Package launch forks processes that execute a prepared list of system calls instead of Go code.
//
// An [Image] is such a list, in memory that the forked process shares with its parent: [Image.Do] appends a
// [Step], [Image.Start] forks a process that executes the steps, and [Image.Failure] returns the step that failed.
// A pid 1 is forked with [Image.StartPID1], because the kernel kills it when the thread that forked it ends.
//
// The package must not know what the steps are for: neither containers nor mounts.
package launch
