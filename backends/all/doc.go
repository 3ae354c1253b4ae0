// Package all lists the backends (the ways to store snapshots and forks) that exist on each operating system.
// The list is explicit: no backend registers itself.
package all
