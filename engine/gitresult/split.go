package gitresult

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/gitrepo"
)

// Trees are one directory in the three states that a promotion of commits compares, each open for reading.
type Trees struct {
	// Path is the absolute path of the real directory.
	Path string
	// Base is the state at the fork, or the best that is known of it. Real is the state
	// that receives the result, and Mine the sandbox's. Base and Real may be one file.
	Base, Real, Mine *os.File
}

// ownNames are the names in a git repository, or in the directory of a linked worktree, of files that only
// git writes. The sandbox's versions of these files are never copied; commits are promoted instead.
var ownNames = []string{
	"objects", "refs", "logs", "packed-refs", "HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE",
	"MERGE_RR", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_LOG", "BISECT_NAMES", "BISECT_TERMS",
	"BISECT_START", "BISECT_EXPECTED_REV", "BISECT_ANCESTORS_OK", "SQUASH_MSG", "COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG",
	"index", "gc.log", "gc.pid", "shallow", "rebase-merge", "rebase-apply", "sequencer", "rr-cache",
}

// isOwn reports whether rel, a path in a git directory, is a file that only git writes, such as the index. A
// promotion does not copy it as an ordinary file.
func isOwn(rel string) bool {
	if rel == "info/refs" {
		return true
	}
	if rest, ok := strings.CutPrefix(rel, "worktrees/"); ok {
		_, inside, _ := strings.Cut(rest, "/")
		return inside != "" && isOwnName(inside)
	}
	return isOwnName(rel) && !strings.HasPrefix(rel, "objects/info/alternates") && !strings.HasPrefix(rel, "objects/info/http-alternates")
}

func isOwnName(rel string) bool {
	first, _, _ := strings.Cut(rel, "/")
	return slices.Contains(ownNames, first) || strings.HasPrefix(first, "sharedindex.") ||
		strings.HasSuffix(first, ".lock") && slices.Contains(ownNames, strings.TrimSuffix(first, ".lock"))
}

// Split separates the changes of files that only git writes from all others, which it returns as rest. repos
// are the repositories with such files, as paths relative to the directory, sorted. A repository that only
// the sandbox or only the real tree has is not among them, and its files stay in rest. So do those of a
// repository in a format that snapfs does not read, which problems names. The deletions of its objects are dropped: the
// real repository may need by now what the sandbox's garbage collection removed.
func Split(t Trees, changes []diff.Change) (rest []diff.Change, repos, problems []string) {
	known := map[string]bool{}
	var unread []string
	isRepo := func(dir string) bool {
		is, ok := known[dir]
		if ok || !gitrepo.IsRepo(gitrepo.Dir{Root: t.Real, Path: dir}) || !gitrepo.IsRepo(gitrepo.Dir{Root: t.Mine, Path: dir}) {
			return is
		}
		r, err := gitrepo.Open(gitrepo.Dir{Root: t.Real, Path: dir}, gitrepo.Options{Trusted: filepath.Join(t.Path, dir)})
		r.Close()
		if is = err == nil; !is {
			problems = append(problems, "commits are not looked for in "+filepath.Join(t.Path, dir)+": "+err.Error())
			unread = append(unread, dir+"/objects/")
		}
		known[dir] = is
		return is
	}
	for _, c := range changes {
		dir, rel := repoOf(c.Path, isRepo)
		if c.Kind == diff.Deleted && slices.ContainsFunc(unread, func(objects string) bool { return strings.HasPrefix(c.Path, objects) }) {
			continue
		}
		if dir == "" || !isOwn(rel) && !c.TimeOnly() && !t.newWorktree(dir, rel) {
			rest = append(rest, c)
		} else if !slices.Contains(repos, dir) {
			repos = append(repos, dir)
		}
	}
	slices.Sort(repos)
	return rest, repos, problems
}

// newWorktree reports whether rel, a path in the git repository dir, belongs to a linked worktree that the
// sandbox made and the real repository does not have.
func (t Trees) newWorktree(dir, rel string) bool {
	rest, ok := strings.CutPrefix(rel, "worktrees")
	if !ok || rest != "" && rest[0] != '/' {
		return false
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return !gitrepo.Dir{Root: t.Real, Path: dir}.IsDir(path.Join("worktrees", id))
}

// repoOf returns the innermost git repository that the path p lies in, "" for none, and the path in it.
// isRepo reports whether a directory is a repository. Repositories of submodules are below "modules".
func repoOf(p string, isRepo func(dir string) bool) (dir, rel string) {
	parts := strings.Split(p, "/")
	i := slices.Index(parts, ".git")
	if i < 0 {
		return "", ""
	}
	top := path.Join(parts[:i+1]...)
	if !isRepo(top) {
		return "", ""
	}
	dir, at := top, i+1
	if at < len(parts) && parts[at] == "modules" {
		for n := at + 1; n <= len(parts); n++ {
			if inner := path.Join(parts[:n]...); isRepo(inner) {
				dir, at = inner, n
				if at >= len(parts) || parts[at] != "modules" {
					break
				}
			}
		}
	}
	rel = path.Join(parts[at:]...)
	if rel == "" {
		rel = "."
	}
	return dir, rel
}

// RepoOf returns the absolute path of the git repository that a directory of the host belongs to: its own
// .git, that of a directory above it, or the common directory of the repository that a linked worktree or a
// submodule names. It returns "" if there is none, or one without .git in its path.
func RepoOf(dir string) string {
	for {
		at := filepath.Join(dir, ".git")
		st, err := os.Lstat(at)
		switch {
		case err == nil && st.IsDir():
			return at
		case err == nil && st.Mode().IsRegular():
			return linkedRepo(at)
		case err == nil || dir == "/" || dir == ".":
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// linkedRepo returns the common directory of the git repository that file, a .git file of a linked worktree
// or submodule, names; "" if it cannot be read.
func linkedRepo(file string) string {
	data, err := os.ReadFile(file)
	to, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir:")
	if err != nil || !ok {
		return ""
	}
	dir := resolve(filepath.Dir(file), to)
	if common, err := os.ReadFile(filepath.Join(dir, "commondir")); err == nil {
		dir = resolve(dir, string(common))
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return ""
}

// resolve returns the absolute form of p, a path that a git file in the directory dir contains and that may
// be relative to dir.
func resolve(dir, p string) string {
	if p = strings.TrimSpace(p); filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}
