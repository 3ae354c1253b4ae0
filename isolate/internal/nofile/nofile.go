// Package nofile remembers how many open files this program was allowed before
// package syscall raised the limit to the most there is, so that what runs in a
// box gets what the program was given itself. Package syscall knows it too, but
// hands it on only to what it starts itself.
//
// It must be initialised before package syscall: packages whose imports are
// ready are initialised in the order of their import paths (go.dev/ref/spec,
// "Program initialization"), and this one imports nothing.
package nofile

// A Limit is struct rlimit: the limit in force, and how far it may be raised.
type Limit struct{ Cur, Max uint64 }

// The one system call at start-up of this project: later is too late. 0.2 µs.
var given = ask()

func ask() (l Limit) {
	if getrlimit(&l) != 0 {
		return Limit{}
	}
	return l
}

// getrlimit is in getrlimit_*.s.
//
//go:noescape
func getrlimit(l *Limit) (errno int)

// Given is the limit that this program was started with; ok is false when the
// kernel would not say.
func Given() (l Limit, ok bool) { return given, given.Max != 0 }
