// Package hostinfo reads the properties and the load of this host: memory, pressure, control
// group hierarchies, time since boot, and the kernel's version.
package hostinfo
