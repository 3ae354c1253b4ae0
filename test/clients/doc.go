// Package clients tests unmodified network programs, such as curl and git, in sandboxes with an allowed
// network. Accesses that a rule allows work; others fail in the program with its own error message, and
// appear as events. The package has tests only: the servers are in serve_test.go, the clients in
// cases_test.go.
package clients
