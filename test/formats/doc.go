// Package formats tests that state directories of earlier versions are read. Its tests mount
// filesystem images with a workspace and the state directory of an earlier snapfs, with
// sandboxes, named snapshots, promotions and baselines, and work with them.
package formats
