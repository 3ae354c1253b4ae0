package leak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fingerprint"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Labelled is a changed path of a result that has content of a labelled file.
type Labelled struct {
	// Path is relative to the tree.
	Path string
	// Secret is set for content labelled secret, which may never leave the sandbox. It is not set for private content.
	Secret bool
	// Why says which content it is, as text that follows "because ".
	Why string
}

// A Result searches the changed files of a sandbox for content of its labelled files.
type Result struct {
	// Labels recognise that content.
	Labels *fingerprint.Set
	// Data has the labels. A file that has a label may have content with the same label.
	Data *catalog.Data
	// Before are the trees before the changes, or nil. Check leaves out content that a file had there already.
	Before []*os.File
	// At returns where each change has its new version. Root is the absolute path of the directory that gets the
	// changes.
	At   Source
	Root string
}

// Check returns the changed paths that have labelled content, in their content, their name, the target of a link, or
// an extended attribute. It leaves out a file that has the label of the content, such as the labelled file itself.
//
// Cost: about 10 ns for each byte of the changed files. Errors: those of reading; fingerprint.ErrTooLarge for a file
// that cannot be searched within its bounds.
func (r Result) Check(changes []diff.Change) (list []Labelled, err error) {
	if r.Labels.Empty() {
		return nil, nil
	}
	for i := range changes {
		c := &changes[i]
		const holds = diff.Content | diff.Type | diff.Xattrs | diff.Target
		if c.New == nil || c.Kind == diff.Deleted || c.Kind == diff.Modified && c.What&holds == 0 {
			continue
		}
		hits, err := r.hitsIn(c)
		if err != nil {
			return nil, errs.With("searching for labelled content", filepath.Join(r.Root, c.Path), err)
		}
		list = r.add(list, c.Path, hits)
		if c.Moved != nil {
			if list, err = r.below(list, c.Path); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// hitsIn returns the labelled content that a change has brought to its path.
func (r Result) hitsIn(c *diff.Change) ([]fingerprint.Hit, error) {
	words := []byte(c.Path + "\x00" + c.New.Target)
	for name, value := range c.New.Xattrs {
		if c.Old == nil || c.Old.Xattrs[name] != value {
			words = append(append(words, 0), name+"\x00"+value...)
		}
	}
	hits, err := r.Labels.Find(words)
	if err != nil || !c.New.Mode.IsRegular() {
		return hits, err
	}
	content, err := r.search(r.At(c.Path))
	for _, tree := range r.Before {
		if err == nil && len(content) > 0 && tree != nil {
			var before []fingerprint.Hit
			before, err = r.search(tree, c.Path)
			content = fingerprint.Without(content, before)
		}
	}
	return append(hits, content...), err
}

// search returns the labelled content of the regular file at path in tree.
func (r Result) search(tree *os.File, path string) ([]fingerprint.Hit, error) {
	f, err := vfs.OpenBeneath(int(tree.Fd()), path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil // a link, a socket, or a path that the merge took from another tree
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("it is larger than the %d GiB that are searched", maxFile>>30)
	}
	return r.Labels.Search(f, info.Size())
}

// below adds the files with labelled content below a renamed directory, at path in the new tree, to list.
func (r Result) below(list []Labelled, path string) ([]Labelled, error) {
	tree, at := r.At(path)
	dir, err := vfs.OpenBeneath(int(tree.Fd()), at, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ELOOP) {
		return list, nil
	}
	if err != nil {
		return nil, errs.With("searching for labelled content", filepath.Join(r.Root, path), err)
	}
	entries, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, errs.With("searching for labelled content", filepath.Join(r.Root, path), err)
	}
	for _, e := range entries {
		inner := path + "/" + e.Name()
		switch {
		case e.IsDir():
			if list, err = r.below(list, inner); err != nil {
				return nil, err
			}
		case e.Type().IsRegular():
			hits, err := r.search(tree, at+"/"+e.Name())
			if err != nil {
				return nil, errs.With("searching for labelled content", filepath.Join(r.Root, inner), err)
			}
			list = r.add(list, inner, hits)
		}
	}
	return list, nil
}

// add adds path to list if it has hits that its own label does not cover.
func (r Result) add(list []Labelled, path string, hits []fingerprint.Hit) []Labelled {
	if len(hits) == 0 {
		return list
	}
	kind := r.labelOf(filepath.Join(r.Root, path))
	for _, h := range hits { // secrets first
		if kind == Secret || kind == h.Source.Kind {
			continue
		}
		return append(list, Labelled{Path: path, Secret: h.Source.Kind == Secret, Why: "it has " + h.String()})
	}
	return list
}

// labelOf returns the label of the file at the absolute path abs, or "" if it has none. Secret wins over Private.
func (r Result) labelOf(abs string) string {
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return pathlist.Match("/", p, abs) })
	}
	switch {
	case matches(r.Data.Secret) || r.Labels.Has(Secret, abs):
		return Secret
	case matches(r.Data.Private) || r.Labels.Has(Private, abs):
		return Private
	}
	return ""
}

// RefuseLabelled returns an errs.ErrDenied that lists the paths of a sandbox's result with content labelled secret, at
// most 20 of them, each with why; nil if there is none. op says what is refused.
func RefuseLabelled(op, sandbox string, n int, at func(i int) (path, why string)) error {
	if n == 0 {
		return nil
	}
	const most = 20
	var all []error
	for i := range min(n, most) {
		path, why := at(i)
		all = append(all, &errs.Error{Path: path, Err: errors.New(why)})
	}
	if n > most {
		all = append(all, fmt.Errorf("and %d more", n-most))
	}
	first, _ := at(0)
	return &errs.Error{
		Op: op, Subject: sandbox, Kind: errs.ErrDenied, Err: errors.Join(all...),
		Hints: []string{"snapfs shell " + sandbox + "   # and remove it, as from " + errs.Quoted(first)},
	}
}
