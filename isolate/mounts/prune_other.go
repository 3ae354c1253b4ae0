//go:build !linux

package mounts

// PruneStored does nothing: only Linux has whiteouts.
func PruneStored(string) error { return nil }
