// Package nofile remembers the limit of open files that this program was started with. Package syscall
// increases the limit at start-up and restores it only in processes that it starts itself; package isolate
// restores it for commands in a container.
//
// It must be initialised before package syscall: packages whose imports are
// ready are initialised in the order of their import paths (go.dev/ref/spec,
// "Program initialization"), and this one imports nothing.
package nofile

// Limit is struct rlimit: the soft and the hard limit.
type Limit struct{ Cur, Max uint64 }

// given is read by the only system call that this project makes at start-up: later is too late. Cost: 0.2 µs.
var given = ask()

func ask() (l Limit) {
	if getrlimit(&l) != 0 {
		return Limit{}
	}
	return l
}

// getrlimit is implemented in getrlimit_*.s.
//
//go:noescape
func getrlimit(l *Limit) (errno int)

// Given returns the limit that this program was started with; ok is false if the kernel did not report it.
func Given() (l Limit, ok bool) { return given, given.Max != 0 }
