//go:build linux

package overlayquota

// Store returns the directory of a state directory's layers.
var Store = layersDir
