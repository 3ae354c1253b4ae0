// Package walls removes each protection of a sandbox in turn, and tests that `snapfs doctor
// --prove` reports it, as root and as an ordinary user. It has tests only.
//
// There is one build of the program from patched source, in which an environment variable
// selects the protections to leave out, so that each costs a run and not a build. Each patched
// place is found by its source text; if that has changed, the tests fail. A protection that
// cannot be tested on this machine has its reason in the table, which the doctor must report
// too.
package walls
