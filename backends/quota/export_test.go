//go:build linux

package quota

// Store is where the layers of a state directory are.
var Store = store
