// Package hostinfo reads what this host has and how busy it is: memory, pressure, control group
// hierarchies, time since boot, and the kernel's version.
package hostinfo
