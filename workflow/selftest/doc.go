// Package selftest probes the isolation of sandboxes from inside: each wall and
// each limit is tried by a program that runs in the sandbox.
//
// Read [Tester.Prove] first. Package prove has the probes.
package selftest
