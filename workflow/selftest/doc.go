// Package selftest tests the isolation of sandboxes from inside: a program that runs in the
// sandbox tries to cross each wall and to exceed each limit.
//
// Read [Tester.Prove] first. Package prove has the probes.
package selftest
