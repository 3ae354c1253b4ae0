package approval

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// sensitive are the names in a git repository of what makes git run programs, or look for its settings in
// another directory (gitrepository-layout(5)). essential are those by which git recognises a repository
// (is_git_directory of its setup.c): without one of them, a directory would be none for a while.
var (
	sensitive = []string{"config", "config.worktree", "commondir", "hooks", "info", "modules", "worktrees"}
	essential = []string{"HEAD", "commondir", "objects", "refs"}
)

// inRepository reports whether a change concerns the settings or hooks of a git repository that is called
// neither .git nor NAME.git, which the list of names holds: a bare one, or one that lies outside of its work
// tree (git init --separate-git-dir). It also reports a change by which a directory stops or starts to be one.
func (c *Checker) inRepository(change *diff.Change) bool {
	if change.Kind == diff.Modified && change.What&^diff.Time == 0 {
		return false
	}
	return c.ofRepository(change.Path, change.Kind != diff.Modified || change.What&diff.Type != 0)
}

// ofRepository reports whether a path is that of settings or hooks of a git repository. With exists, the path
// appears, vanishes or has another type, which matters for what makes a directory a repository, too.
func (c *Checker) ofRepository(p string, exists bool) bool {
	for dir, inside := ".", p; ; {
		first, rest, below := strings.Cut(inside, "/")
		name := fold(first)
		if (slices.Contains(sensitive, name) || exists && !below && slices.Contains(essential, name)) && c.isRepository(dir) {
			return true
		}
		if !below {
			return false
		}
		dir, inside = path.Join(dir, first), rest
	}
}

// isRepository reports whether the directory dir has the files of a git repository. Each may be in any of the
// trees, because the promoted changes may be only some of the sandbox's: what was a repository, is one, or
// becomes one by them counts.
func (c *Checker) isRepository(dir string) bool {
	return remembered(&c.repositories, dir, func() bool {
		return c.has(dir, "HEAD") && (c.has(dir, "commondir") || c.has(dir, "objects") && c.has(dir, "refs"))
	})
}

// remembered returns the answer about a directory in known, which it gets from find the first time.
func remembered(known *map[string]bool, dir string, find func() bool) bool {
	is, ok := (*known)[dir]
	if !ok {
		is = find()
		if *known == nil {
			*known = map[string]bool{}
		}
		(*known)[dir] = is
	}
	return is
}

// has reports whether the directory dir has something of this name in the sandbox's tree, or in one of those
// before.
func (c *Checker) has(dir, name string) bool {
	p := path.Join(dir, name)
	tree, at := c.tree(p)
	return exists(tree, at) || slices.ContainsFunc(c.before, func(tree *os.File) bool { return exists(tree, p) })
}

func exists(tree *os.File, p string) bool {
	if tree == nil {
		return false
	}
	_, err := vfs.Lstat(int(tree.Fd()), p)
	return err == nil
}
