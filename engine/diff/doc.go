// Package diff finds the exact differences of two trees and writes them for people, for git
// and for programs.
//
// There is one model ([Change]) and one order, whichever source lists the paths to compare:
// the upper of an overlay, a filesystem's own list of changes, or a walk of both sides. The
// sources only list paths ([snapshot.Candidate]); this package compares the two trees there.
//
// It compares: type, permission bits, owner, size and content, modification time, symbolic
// link target, device number, extended attributes (including access control lists and file
// capabilities), and which names are hard links of one file. It does not compare: access and
// change times, inode and device numbers, link counts and sizes of directories, and holes in
// sparse files. The modification time of a directory counts only if both sides have the same
// names in it: otherwise the changes of those names imply it. If the type changed, nothing
// else is compared.
//
// # Hard links
//
// Links are compared among the changed paths only, because a comparison of listed paths does
// not see the others. For this purpose a path with a different link count counts as changed
// (and with Options.SameInodes a path with several links and a different inode number). The
// changed paths that share an inode on one side form a group. If the old and the new group of
// a path have different names, [Links] differs, and [Node.LinkOf] is the first name of the
// group. So a link that joins a new name to an old one shows at both names. A link count that
// differs only because of names outside the tree, or because an overlay copied up one of
// several links, shows nowhere. Links that were exchanged without any difference in count,
// time or content are not detected.
//
// # Where to start
//
// [Change] and [Node], then [Trees] and [At], the two ways to compare. Both run tasks on workers;
// worker.compareOnce compares one name. [Renames] pairs changes afterwards.
//
// The package must not know sandboxes or backends: it compares two open directories.
package diff
