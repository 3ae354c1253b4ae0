//go:build linux

package qgroup

// Forget is the second half of what a sweep does with a group.
var Forget = forget
