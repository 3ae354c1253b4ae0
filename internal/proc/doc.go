// Package proc identifies processes by pid, start time and boot, so that a process with a
// reused pid is not mistaken for an earlier one.
package proc
