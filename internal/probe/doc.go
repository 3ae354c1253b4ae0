// Package probe finds out which features this host's kernel has. Each probe answers yes, no, or unknown, with
// its cause. A probe uses the feature once, in miniature, and removes the results, because version numbers
// mislead: distributions backport, administrators restrict, containers filter.
package probe
