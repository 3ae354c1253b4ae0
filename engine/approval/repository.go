package approval

import (
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// sensitive are the names in a git repository of what makes git run programs, or look for its settings in
// another directory (gitrepository-layout(5)).
var sensitive = []string{"config", "config.worktree", "commondir", "hooks", "info", "modules", "worktrees"}

// inRepository reports whether a change concerns the settings or hooks of a git repository that is called
// neither .git nor NAME.git, which the list of names holds: a bare one, or one that lies outside of its work
// tree (git init --separate-git-dir). git takes every directory for a repository that has the files of one.
func (c *Checker) inRepository(change *diff.Change) bool {
	if change.New == nil || change.TimeOnly() {
		return false
	}
	for dir, inside := ".", change.Path; ; {
		first, rest, below := strings.Cut(inside, "/")
		if slices.Contains(sensitive, fold(first)) && c.isRepository(dir) {
			return true
		}
		if !below {
			return false
		}
		dir, inside = path.Join(dir, first), rest
	}
}

// isRepository reports whether the directory dir has the files of a git repository in the sandbox's tree: what
// git looks for in a directory (is_git_directory of setup.c).
func (c *Checker) isRepository(dir string) bool {
	is, known := c.repositories[dir]
	if !known {
		is = c.has(dir, "HEAD") && (c.has(dir, "commondir") || c.has(dir, "objects") && c.has(dir, "refs"))
		if c.repositories == nil {
			c.repositories = map[string]bool{}
		}
		c.repositories[dir] = is
	}
	return is
}

// has reports whether the directory dir of the sandbox's tree has something of this name.
func (c *Checker) has(dir, name string) bool {
	tree, at := c.tree(path.Join(dir, name))
	if tree == nil {
		return false
	}
	_, err := vfs.Lstat(int(tree.Fd()), at)
	return err == nil
}
