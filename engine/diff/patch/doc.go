// Package patch writes changes as text that git, and people, can read.
//
// It is a package of its own because line comparison, compression and hashing
// cost start-up time that only a command which prints a patch should pay.
//
// # Where to start
//
// [Write] writes a patch, [Stat] and [Lines] count its lines, and [Painter] shows it on a terminal.
//
// The package must not know sandboxes or the user's git configuration, and must not write to
// either tree.
package patch
