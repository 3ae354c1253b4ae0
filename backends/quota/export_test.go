//go:build linux

package quota

// Store returns the directory of a state directory's layers.
var Store = layersDir
