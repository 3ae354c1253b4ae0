// Package gitresult finds the commits that a sandbox made in a git repository, and plans how
// the real repository gets it.
//
// Read [Split] first, which separates git's own files from the user's, then [Inspect],
// which lists the moved refs with their commits, and [Plan], which decides what becomes of
// each. The package never runs git, and never copies a file that the sandbox wrote: it
// computes refs and the index from objects that package gitrepo has verified. Hooks,
// settings and attributes stay ordinary changes, which need approval.
//
// The package must not know sandboxes or promotion, and writes only objects
// ([Result.WriteObjects]) and files in the scratch directory of the caller.
package gitresult
