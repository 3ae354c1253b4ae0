// Package promote applies changes to a real tree: all of them or none.
//
// # How
//
// [Apply] touches nothing in the target until every new file is complete beside it. It
//
//  1. compares each path that will change with the target, and refuses paths that drifted
//     since the sandbox was forked ([Check]), and changes that need approval and have none
//     ([approval.Reason]);
//  2. builds the new versions, with all metadata, in a private directory on the target's
//     filesystem, the stage;
//  3. writes a journal with the moves and the inodes that it expects, and syncs both;
//  4. moves: it exchanges a changed file with its new version, renames a new node in and a
//     deleted one out, a directory with everything in it by one call. A displaced node is
//     private from then on, so comparing it with the expected one is a compare-and-swap
//     without a race;
//  5. sets metadata of nodes that stay in place, directories last;
//  6. syncs, compares everything displaced once more, and writes the commit. Only then it
//     removes the old files.
//
// An error before the commit reverts everything, in reverse. After a crash [Recover] reverts
// in the same way, or only cleans up if the commit was written. The locations of the inodes
// decide each of its steps.
//
// # Promises
//
// Apply follows no symbolic link of the target and does not leave it: it opens each directory
// below the root with openat2(2). It never runs a program of either tree. If a program has a
// file open and writes to it between the exchange and the last comparison, Apply notices and
// reverts everything; a write after that goes to the old file, as with every program that
// saves by renaming.
//
// # A reader's view
//
// At every path and at every instant, a reader sees the whole old file or the whole new one:
// never half of one, and never no file where both versions have one. During steps 4 and 5
// (10 to 50 µs for each change) one path may be new already and another still old. To keep
// this time short, and to let readers detect it:
//
//   - all new files are complete and on disk before the first path changes, so only the
//     renames take time;
//   - meanwhile, and after a crash until Recover has run, the stage .snapfs-apply-ID exists
//     beside the target (or in it, if the parent directory is on another filesystem or not
//     writable), and the journal in the state directory. Without an ID.journal or
//     ID.undoing there, the target is wholly old or wholly new;
//   - no stage is left without a journal: its removal is on disk before that of the journal.
//     A stage retained for an undo has an ID.undo.
//
// After a power cut the same holds for the disks, in whatever order they were written, with
// the target and the state directory on one disk or on two.
//
// # Filesystems without rename flags
//
// ZFS before 2.2 and others support neither RENAME_EXCHANGE nor RENAME_NOREPLACE. There,
// link(2), rename(2) and unlink(2) replace each move, see nodes/move.go: still all or nothing,
// reverted and completed in the same way, with two weaker promises. If a directory replaces a
// file, a file a directory, or one directory another, the path does not exist for an instant,
// and after a power cut in it until Recover runs. And if another program renames a file to the
// path in the microseconds between the last check and the move, that file is lost.
//
// # Undo and redo
//
// A promotion that is retained for an undo leaves the old versions in its stage, and its journal
// as ID.undo. [UndoWith] moves the nodes back and may leave the new versions there, with the
// inverse of the journal as ID.redo: [Redo] is the undo of that. An undo of some paths makes
// them a promotion of their own in the same stage first. If a step cannot be reverted, because
// another program changed its path in the midst, those reverted so far are done again by the
// same inverse: all or nothing. If that fails, Recover continues the undo.
//
// # Limits
//
// File attributes of chattr(1) are not promoted. If a hard link of a changed file is not among
// the changes, exchanging the file would separate the two: Apply refuses.
//
// # Where to start
//
// [Apply] and the steps of work.run. planner turns changes into ops, work executes them, and
// record is the journal: everything that [Recover] and [Undo] know.
//
// The package must not know sandboxes, backends or how the changes were found. It is the only
// package that writes to the real tree, partly through package nodes.
package promote
