//go:build linux

// Package diff reads the layers of an overlay without mounting them: it looks names up as overlayfs
// does, lists the changes between two states, finds and removes redirects, and merges layers.
//
// Begin with [Layers] and [Stack] (stack.go), the look-up of a name through all layers. [ListChanges],
// [FindRedirects], [Detach] and [Merge] are built on it.
//
// The package knows trees of layers by their paths; records and locks are the matter of package store.
package diff
