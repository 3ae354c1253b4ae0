// Package merge merges the changes of a sandbox with those of the real tree, three-way.
//
// The three trees are base, the merge base; mine, the sandbox; and real. [Trees] returns
// the changes that turn real into the merged tree, and a [Conflict] for each change that
// it cannot decide: both sides changed the same file, to different results. It guesses
// nothing.
//
// The package knows no git, and writes only to the scratch directory of the caller.
//
// A limit: when one side renames one of several hard links of a file and changes nothing
// else, the list of changes does not mention the other links. The renamed one becomes a
// file of its own.
//
// # Where to start
//
// [Input] and [Result], then the merger's run: it reports conflicts of unknown bases and removed
// directories, decides on each entry, makes the tree consistent, and collects the result. An
// entry is one node with its state in each of the three trees. [Text] is the line merge alone.
//
// The package must not know sandboxes, backends or promotion, and must not write outside Scratch.
package merge
