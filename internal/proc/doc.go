// Package proc identifies processes by pid, start time and boot, so that a pid used again is not
// mistaken for the process that had it before.
package proc
