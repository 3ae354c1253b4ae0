// Package clients runs programs that people use over a network, whole and
// unchanged, in sandboxes with an allowed network: what a rule allows works, and
// what none does fails in the program with words of its own, and is an event. It
// has tests only: the servers are in serve_test.go, what each client does in
// cases_test.go.
package clients
