// Package statement signs the evidence that package audit stores, the log of everything done with a sandbox:
// statements about its start and end (in-toto Statement v1 in a DSSE envelope), and the root hash of the log
// as a checkpoint (C2SP tlog-checkpoint). All signatures are Ed25519, with the key of this host.
//
// DSSE is written here, since the library of its authors links an SSH implementation into each program that
// verifies. A test has that library's Python sibling verify the envelopes.
package statement
