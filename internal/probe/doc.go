// Package probe answers what this host's kernel can do: yes, no, or unknown, each with its cause.
// A probe does the operation in miniature and takes it back, because version numbers lie:
// distributions backport, administrators restrict, containers filter.
package probe
