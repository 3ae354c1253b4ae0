package leak

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/datafiles"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fingerprint"
	"github.com/snapfs/snapfs/internal/vfs"
)

// The labels of [data] in a profile, as kinds of fingerprints.
const (
	// Secret is the label of files whose content may never leave the sandbox.
	Secret = fingerprint.Secret
	// Private is the label of files whose content a person may allow in a result.
	Private = "private"
)

// labelsFile is the name of the file in a sandbox's directory with the fingerprints of its labelled files.
const labelsFile = "labels.json"

// Bounds of the files that the labels of one sandbox may name, and of the files and directories that snapfs searches
// for them. Beyond them the sandbox does not start.
const (
	maxFiles   = 10_000
	maxEntries = 200_000
)

// ReadLabels reads the labelled files of a policy on the real machine, stores their fingerprints in the sandbox's
// directory dir, and returns them. Fingerprints from earlier calls stay, because the sandbox may have the earlier
// content. It returns nil if the policy has no labels. A file that the policy hides is left out.
//
// Cost: none without labels; some milliseconds for each MiB of labelled files that changed since the last call.
// Errors: errs.ErrInvalid for files that cannot be recognised within the bounds of package fingerprint.
func ReadLabels(dir string, p *catalog.Policy) (*fingerprint.Set, error) {
	if !p.Data.Labelled() {
		return nil, nil //nolint:nilnil // nothing is labelled
	}
	old, err := loadLabels(dir)
	if err != nil {
		return nil, err
	}
	set, err := readLabels(old, p)
	if err != nil || set == old {
		return set, err
	}
	text, err := set.Encode()
	if err == nil {
		err = catalog.ReplaceFile(filepath.Join(dir, labelsFile), text, false)
	}
	return set, errs.With("storing the fingerprints of labelled files", dir, err)
}

// readLabels returns the fingerprints of the labelled files of a policy that has labels, and what old recognises. It
// returns old itself, which may be nil, if no file has changed since.
func readLabels(old *fingerprint.Set, p *catalog.Policy) (*fingerprint.Set, error) {
	r := labelReader{build: fingerprint.NewBuilder(old), hide: p.Hide, real: map[string]string{}}
	for _, l := range []struct {
		kind  string
		paths []string
	}{{Secret, p.Data.Secret}, {Private, p.Data.Private}} {
		for _, pattern := range l.paths {
			if err := r.label(l.kind, pattern); err != nil {
				return nil, err
			}
		}
	}
	if r.read == 0 && old != nil {
		return old, nil
	}
	return r.build.Set(), nil
}

// StoreLabels stores the fingerprints of a sandbox's labelled files, as [ReadLabels] does, without returning them.
func StoreLabels(dir string, p *catalog.Policy) error {
	_, err := ReadLabels(dir, p)
	return err
}

// loadLabels returns the fingerprints that [ReadLabels] stored in the sandbox's directory dir, or nil if there are
// none.
func loadLabels(dir string) (*fingerprint.Set, error) {
	text, err := os.ReadFile(filepath.Join(dir, labelsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is labelled
	}
	if err != nil {
		return nil, err
	}
	set, err := fingerprint.Load(text)
	return set, errs.With("reading the fingerprints of labelled files", dir, err)
}

// OpenLabels opens the file of fingerprints that [ReadLabels] stored in the sandbox's directory dir, for the network
// proxy. The caller closes it.
func OpenLabels(dir string) (*os.File, error) { return os.Open(filepath.Join(dir, labelsFile)) }

// InheritLabels copies the fingerprints of labelled files from a sandbox's directory to that of its fork, which has
// the same files. Without fingerprints it does nothing.
func InheritLabels(from, to string) error {
	text, err := os.ReadFile(filepath.Join(from, labelsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return catalog.ReplaceFile(filepath.Join(to, labelsFile), text, false)
}

// A labelReader reads the labelled files of one sandbox from the real machine.
type labelReader struct {
	build   *fingerprint.Builder
	hide    []string // paths that the sandbox does not show
	read    int      // files of which build did not have this version
	files   int
	entries int
	dirs    map[string]bool   // the directories that are searched already for the present pattern
	real    map[string]string // directories that were looked up, after symbolic links
}

// label adds the files to which the pattern, an absolute path or a pattern of [pathlist.Match], gives the label kind.
func (r *labelReader) label(kind, pattern string) error {
	top := pathlist.Fixed(pattern)
	r.dirs = map[string]bool{}
	err := r.add(kind, top, func(path string) bool { return pathlist.Match("/", pattern, path) })
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // nothing has the label here
	}
	return err
}

// add adds the file at path, or those below the directory at path, for which match returns true. It follows symbolic
// links, as programs that open the path do.
func (r *labelReader) add(kind, path string, match func(path string) bool) error {
	real := datafiles.AfterLinks(path, r.real)
	info, err := os.Stat(real) // a link is left if it leads nowhere
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.hide, func(h string) bool { return pathlist.Within(real, h) }) {
		return nil
	}
	if r.entries++; r.entries > maxEntries {
		return refuseLabel(kind, path, fmt.Errorf("more than %d files and directories are looked through for it", maxEntries))
	}
	switch {
	case info.IsDir():
		return r.addDir(kind, path, real, match)
	case info.Mode().IsRegular() && match(path):
		return r.addFile(kind, real)
	}
	return nil
}

func (r *labelReader) addDir(kind, path, real string, match func(string) bool) error {
	if r.dirs[real] {
		return nil // searched already, through another link
	}
	r.dirs[real] = true
	entries, err := os.ReadDir(real)
	if err != nil {
		return refuseLabel(kind, path, err)
	}
	for _, e := range entries {
		err := r.add(kind, filepath.Join(path, e.Name()), match)
		if errors.Is(err, os.ErrNotExist) && e.Type()&fs.ModeSymlink != 0 {
			continue // a dangling link
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *labelReader) addFile(kind, real string) error {
	st, err := vfs.Lstat(unix.AT_FDCWD, real)
	if err != nil {
		return refuseLabel(kind, real, err)
	}
	if r.files++; r.files > maxFiles {
		return refuseLabel(kind, real, fmt.Errorf("it is one of more than %d files with a label", maxFiles))
	}
	s := fingerprint.Source{Kind: kind, Name: real, Stamp: fmt.Sprintf("%d.%d.%d.%d.%d", st.Dev, st.Ino, st.Size, st.MTime.Time().UnixNano(), st.CTime.Time().UnixNano())}
	if r.build.Has(s) {
		return nil
	}
	f, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return refuseLabel(kind, real, err)
	}
	defer f.Close()
	if err := r.build.Add(s, f); err != nil {
		return refuseLabel(kind, real, err)
	}
	r.read++
	return nil
}

// refuseLabel returns the error of a labelled file that cannot be recognised in what leaves the sandbox: then the
// sandbox does not start.
func refuseLabel(kind, path string, err error) error {
	var bad *fs.PathError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	return &errs.Error{
		Op: "reading the content labelled " + kind, Path: path, Kind: errs.ErrInvalid, Err: err,
		Hints: []string{"snapfs run --hide " + errs.Quoted(path) + " …   # so that it is not inside, or narrow the label in [data]"},
	}
}
