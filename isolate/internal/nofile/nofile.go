// Package nofile records the limit of open files with which this program was started. Package
// syscall increases the limit at start-up and restores it only in processes that it starts
// itself; package isolate restores it for commands in a container.
//
// It must be initialised before package syscall. Packages whose imports are ready are
// initialised in the order of their import paths (go.dev/ref/spec, "Program initialization"),
// and this one imports nothing.
package nofile

// Limit is a limit of open files as a struct rlimit of the kernel: Cur is the soft limit, Max the hard one.
type Limit struct{ Cur, Max uint64 }

// given is the limit of open files at the program's start, read during initialisation because package syscall
// changes it afterwards. Cost: 0.2 µs.
var given = ask()

func ask() (l Limit) {
	if getrlimit(&l) != 0 {
		return Limit{}
	}
	return l
}

// getrlimit reads the limit of open files of this process into l, without package syscall, which changes it.
// It is implemented in getrlimit_*.s.
//
//go:noescape
func getrlimit(l *Limit) (errno int)

// Given returns the limit of open files that this program was started with; ok is false if the kernel did not
// report it.
func Given() (l Limit, ok bool) { return given, given.Max != 0 }
