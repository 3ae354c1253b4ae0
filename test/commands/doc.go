// Package commands runs random commands of snapfs from several workers at once, while a person's edits of the
// real files are simulated and random processes of snapfs are killed. It tests that no edit is lost and
// nothing is left behind. It has tests only.
//
// A run has a seed, which it prints. Threads and kills differ between runs of the same seed. So a failing run
// also prints the commands in the order in which they ended, and with SNAPFS_COMMANDS_KEEP=1 it waits for a
// signal with its trees in place.
package commands
