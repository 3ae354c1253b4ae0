// Package gitrepo reads git repositories that nobody trusts, and writes packs and
// indexes, without git.
//
// Read [Repo] first. Every file is opened relative to a directory descriptor, and no
// symbolic link is followed. Every object is hashed again when it is read, every size is
// bounded, and [Check] accepts only objects that `git fsck --strict` accepts. The package
// reads SHA-1 repositories with refs in files; [Open] refuses others. It follows
// objects/info/alternates only in a repository that the caller trusts.
//
// The package must not know sandboxes or promotion, and must not write but where the
// caller hands it an open file or directory.
package gitrepo
