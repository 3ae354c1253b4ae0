package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Repo is an open git repository: the directory that holds HEAD, refs and objects. [Open] returns it; it is
// not safe for concurrent use.
type Repo struct {
	Dir
	// Worktree is the directory of core.worktree as written; "" if it is not set.
	Worktree string
	// Bare is core.bare.
	Bare    bool
	objects *store
	shallow map[ID]bool
}

// Options say how far [Open] trusts a git repository, such as whether it follows alternates, and how large
// its objects may be.
type Options struct {
	// Trusted is the absolute path of a repository that belongs to the caller: its
	// alternates are followed. "" follows none.
	Trusted string
	// MaxObject is the size in bytes of the largest object that is read; 0 means 256 MiB.
	MaxObject int64
}

// ErrFormat means that a repository or an index has a format that this package does not read, such as SHA-256
// objects, refs in a reftable or a split index.
var ErrFormat = errors.New("not supported")

// IsRepo reports whether the directory d looks like a git repository: it has a file HEAD and a directory
// objects.
func IsRepo(d Dir) bool {
	st, err := d.Stat("HEAD")
	return err == nil && (st.IsRegular() || st.IsSymlink()) && d.IsDir("objects")
}

// Open opens the git repository in the directory d. The caller calls Close after use. Errors: ErrFormat, and
// those of reading the repository's config.
func Open(d Dir, o Options) (*Repo, error) {
	r := &Repo{Dir: d, shallow: map[ID]bool{}}
	if o.MaxObject == 0 {
		o.MaxObject = 256 << 20
	}
	if err := r.readConfig(); err != nil {
		return nil, err
	}
	for _, name := range []string{"objects", "refs"} {
		if !d.IsDir(name) {
			return nil, fmt.Errorf("%s is no directory: %w", name, ErrFormat)
		}
	}
	shallow, err := d.Read("shallow", 64<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(shallow)) {
		if id, ok := ParseID(strings.TrimSpace(line)); ok {
			r.shallow[id] = true
		}
	}
	r.objects = &store{dir: d.In("objects"), limit: o.MaxObject}
	if o.Trusted != "" {
		if err := r.objects.openAlternates(filepath.Join(o.Trusted, "objects"), 0); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close closes all files that the repository has opened, but not the directory Dir.Root, which the caller
// opened.
func (r *Repo) Close() {
	if r != nil && r.objects != nil {
		r.objects.close()
	}
}

// readConfig reads the settings in the repository's config file that decide how to read all else: the
// extensions, core.bare and core.worktree. It follows no include, because git too reads these settings from
// the file alone.
func (r *Repo) readConfig() error {
	data, err := r.Read("config", 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "["); ok {
			name, after, _ := strings.Cut(rest, "]")
			section, line = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(after)
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.Trim(strings.TrimSpace(value), `"`)
		switch {
		case section == "core" && key == "worktree":
			r.Worktree = value
		case section == "core" && key == "bare":
			r.Bare = strings.EqualFold(value, "true") || value == "1" || strings.EqualFold(value, "yes")
		case section == "extensions" && key != "" && !strings.HasPrefix(key, "#") && !strings.HasPrefix(key, ";"):
			if !knownExtension(key, strings.ToLower(value)) {
				return fmt.Errorf("a repository with extensions.%s = %s is %w", key, value, ErrFormat)
			}
		}
	}
	return nil
}

func knownExtension(key, value string) bool {
	switch key {
	case "objectformat", "compatobjectformat":
		return value == "sha1"
	case "refstorage":
		return value == "files"
	case "noop", "preciousobjects", "partialclone", "worktreeconfig", "relativeworktrees":
		return true
	}
	return false
}

// openAlternates opens the object directories that the file objects/info/alternates of a trusted repository
// names. at is the absolute path of the store, from which relative alternates count; depth is the number of
// alternates followed so far, and more than five are an ErrFormat, as in git.
func (s *store) openAlternates(at string, depth int) error {
	data, err := s.dir.Read("info/alternates", 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		path := strings.TrimSuffix(line, "\n")
		if path == "" || path[0] == '#' {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(at, path)
		}
		if depth == 5 {
			return fmt.Errorf("alternates nest too deeply: %w", ErrFormat)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		next := &store{dir: Dir{f, "."}, limit: s.limit, own: f}
		s.alternates = append(s.alternates, next)
		if err := next.openAlternates(path, depth+1); err != nil {
			return err
		}
	}
	return nil
}
