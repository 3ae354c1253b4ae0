// Package realwork tests unmodified everyday programs in `snapfs run`: package managers, compilers, git,
// databases. Each must work, its changes must be reported, and the real machine must be unchanged. It has
// tests only: the work is in scripts of testdata, and machine_test.go compares the machine.
package realwork
