// Package clients tests network programs, whole and unchanged, in sandboxes with an allowed
// network. What a rule allows works; other accesses fail in the program with its own error
// message, and appear as events. It has tests only: the servers are in serve_test.go, the
// clients in cases_test.go.
package clients
