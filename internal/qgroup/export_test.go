//go:build linux

package qgroup

// Forget is the second half of Sweep for a group.
var Forget = forget
