// Package kernel is the one door to raw system calls, and the place that knows
// what this host's kernel can do.
//
// It has two halves. The files named by topic (mount, overlay, stat, xattr,
// reflink, process) are thin: one call, one function, descriptors in and out,
// nothing cached. The probes answer "yes", "no" or "unknown" by doing the
// thing in miniature and taking it back, because version numbers lie:
// distributions backport, administrators restrict, containers filter.
//
// Descriptors are handed out as *os.File with close-on-exec set, and taken as
// int where AT_FDCWD is meaningful. Paths are any bytes but NUL.
package kernel
