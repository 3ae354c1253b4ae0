// Package formats reads state directories of the past. Its tests mount images of
// filesystems that hold a workspace and the state directory of an earlier snapfs,
// with sandboxes, named snapshots, promotions and baselines, and work with them.
package formats
