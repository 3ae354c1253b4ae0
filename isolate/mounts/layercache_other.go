//go:build !linux

package mounts

// A LayerCache holds nothing: only on Linux does a container have layers that hide entries.
type LayerCache struct{}
