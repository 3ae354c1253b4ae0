package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxRefs  = 200_000
	maxDepth = 32
)

// Refs returns the branches, tags and other refs of the repository by full name, such as "refs/heads/main",
// and the object that each names. It leaves out symbolic refs, and files in refs that hold none. Errors:
// ErrTooLarge for over 200,000 refs, or too many levels of directories.
func (r *Repo) Refs() (map[string]ID, error) {
	all := map[string]ID{}
	packed, err := r.Dir.Read("packed-refs", 64<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(packed)) {
		digits, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if id, ok := ParseID(digits); ok && ValidRef(name) {
			all[name] = id
		}
	}
	if err := r.looseRefs("refs", 0, all); err != nil {
		return nil, err
	}
	if len(all) > maxRefs {
		return nil, fmt.Errorf("more than %d refs: %w", maxRefs, ErrTooLarge)
	}
	return all, nil
}

func (r *Repo) looseRefs(dir string, depth int, all map[string]ID) error {
	list, err := r.List(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		name := dir + "/" + e.Name
		if e.Type == unix.DT_DIR || e.Type == unix.DT_UNKNOWN && r.IsDir(name) {
			if depth == maxDepth {
				return fmt.Errorf("refs nest too deeply: %w", ErrTooLarge)
			}
			if err := r.looseRefs(name, depth+1, all); err != nil {
				return err
			}
			continue
		}
		if !ValidRef(name) {
			continue
		}
		if id, _, err := r.readRef(r.Dir, name); err == nil && !id.Zero() {
			all[name] = id
		} else if len(all) > maxRefs {
			return fmt.Errorf("more than %d refs: %w", maxRefs, ErrTooLarge)
		}
	}
	return nil
}

// readRef reads the file name in d as a ref. It returns the object that the ref names, or, for a symbolic ref,
// the full name of another ref.
func (r *Repo) readRef(d Dir, name string) (id ID, symbolic string, err error) {
	data, err := d.Read(name, 4096)
	if err != nil {
		return id, "", err
	}
	text := strings.TrimRight(string(data), " \t\r\n")
	if to, ok := strings.CutPrefix(text, "ref:"); ok {
		if to = strings.TrimSpace(to); ValidRef(to) {
			return id, to, nil
		}
	} else if id, ok := ParseID(text); ok {
		return id, "", nil
	}
	return id, "", fmt.Errorf("%s: %w", name, ErrDamaged)
}

// Head returns the full name of the branch that HEAD is on, or the commit if HEAD is detached from any
// branch. d is the directory that holds HEAD: that of the repository or of a linked worktree. Of the two
// results one is set: branch is "" if HEAD is detached, otherwise id is zero.
func (r *Repo) Head(d Dir) (branch string, id ID, err error) {
	id, branch, err = r.readRef(d, "HEAD")
	return branch, id, err
}

// ValidRef reports whether a full ref name, which begins with "refs/", is one that git accepts.
func ValidRef(name string) bool {
	rest, ok := strings.CutPrefix(name, "refs/")
	if !ok || len(name) > 1024 || strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") ||
		strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune(`~^:?*[\`, c) }) {
		return false
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
