// Package statement signs the evidence that package audit stores: statements of the start and the end of a
// session (in-toto Statement v1 in a DSSE envelope), and the root of the log as a checkpoint (C2SP
// tlog-checkpoint). All signatures are Ed25519, with the key of this host.
//
// DSSE is written here, since the library of its authors links an SSH implementation into each program that
// verifies. A test has that library's Python sibling verify the envelopes.
package statement
