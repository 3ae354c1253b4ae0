// Package forkcall runs a list of system calls in a forked child that never returns to Go. That is the only
// way for a multi-threaded program to enter a new user or mount namespace (setns(2), unshare(2)).
package forkcall
