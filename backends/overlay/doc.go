//go:build linux

// Package overlay stores snapshots and forks by the kernel's overlayfs: the real tree is the lowest
// layer, and each fork writes to an upper layer of its own. It needs only a Linux kernel, and works for
// root and, in a user namespace, for ordinary users.
//
// A snapshot is live: a file that no layer has changed shows the present content of the real tree.
//
// Sealing an idle fork takes three small files: the fork gets a new empty upper, then the snapshot its
// record, then the fork its new base. The state after each step is valid. A crash leaves only layers
// that no record names, and Sweep deletes those.
//
// # Visible limits of overlayfs
//
// A file of the real tree with several hard links is copied up when somebody first writes to it
// through one of them. The other names keep the old content, and only the written name is listed as
// changed. (With index=on the kernel preserves such links, but stores a part of the state in the work
// directory, and a layer would not be complete by itself.)
//
// An ordinary user cannot rename a directory of the real tree in one call, and cannot give the root of
// another user's tree to its owner.
//
// # Reading the code
//
// Begin with [Backend] (overlay.go) and its methods in verbs.go and seal.go. Three packages do its work:
// store has the records, layers and trash of the state directory, quota the limits by project quotas, and
// diff reads and combines layers as overlayfs does.
//
// The package knows neither the engine nor another backend. Packages overlayquota and overlayfuse use it
// with another storage of layers, or another lower tree.
package overlay
