// Package selftest tests the isolation of sandboxes from inside: a program that runs in a sandbox tries to
// cross each boundary ("wall") and to exceed each limit.
//
// Read [Tester.Prove] first. Package prove has the probes, each of which is one such attempt.
package selftest
