// Package realwork runs what people run, whole and unchanged, inside snapfs run:
// package managers, compilers, git, databases. Each must work, show its changes
// in the report, and leave the real machine as it was. It has tests only: the
// works are the scripts of testdata, and what is compared of the machine is in
// machine_test.go.
package realwork
