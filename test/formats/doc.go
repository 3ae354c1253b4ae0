// Package formats tests that this snapfs reads the state directories of earlier versions. Its tests mount
// filesystem images with a workspace and the state directory of an earlier snapfs, with sandboxes, named
// snapshots, promotions and baselines, and work with them.
package formats
