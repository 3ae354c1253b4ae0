//go:build linux

// Package jobs holds the pieces of everyday work that package bench times, such as a build and a git status: in a
// sandbox and outside, and on the layers of snapfs, overlayfs and fuse-overlayfs.
//
// [Amounts] and [LayerAmounts] are the two lists, each with the files that its jobs need. [Work] is the main function
// of a worker process, which runs them by name.
package jobs
