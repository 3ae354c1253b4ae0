// Package walls takes the walls of a sandbox down, one after the other, and sees
// `snapfs doctor --prove` notice: as root and as an ordinary user. It has tests only.
//
// There is one broken build of the program, of the real source with the places
// replaced where a wall is made. An environment variable
// names the parts that it leaves out, so that each wall costs a run and not a build. Each place
// is named by its own words: where they have changed, the tests say so. What cannot
// be tried on this machine has its reason in the table, and the doctor has to say the
// same.
package walls
