//go:build linux

// Package diff reads the layers of an overlay without mounting them: it looks names up as
// overlayfs does, lists the changes between two states, finds and removes redirects, and
// merges layers.
//
// Begin with [Layers] and [Stack] (stack.go), the lookup of a name through all layers.
// [ListChanges], [FindRedirects], [Detach] and [Merge] use them.
//
// The package knows layers only as paths of directories; package store has the records and
// locks.
package diff
