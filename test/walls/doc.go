// Package walls removes each protection of a sandbox in turn, and tests that `snapfs doctor --prove` reports
// that, as root and as an ordinary user. It has tests only.
//
// It builds the program once, from patched source in which an environment variable selects the protections to
// leave out. So each protection costs a run and not a build. The places to patch are found by their source
// text; if that has changed, the tests fail. For a protection that cannot be tested on this machine, the
// table of the tests has the reason, which the doctor must report too.
package walls
