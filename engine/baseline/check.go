package baseline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// asideSuffix ends the name of a damaged file that a repair has put aside. It stays until the sandbox is
// removed.
const asideSuffix = ".damaged"

// withRepairHint returns err with the command that repairs a sandbox's records, if err says that one is
// damaged.
func withRepairHint(name string, err error) error {
	if e := (*errs.Error)(nil); errors.As(err, &e) && errors.Is(err, errs.ErrCorrupt) {
		e.Hints = []string{"snapfs doctor " + name + " --repair"}
	}
	return err
}

// Check looks for damage in what is stored of a sandbox's base: the originals of its changed files, the time
// from which the real tree has them, and the stamps of promoted files. repair puts damaged files aside. The
// originals in them are then not known, so that a change of the real tree there becomes a conflict. A file
// that cannot be read, or has the format of a newer snapfs, is no damage: it stays, and Check returns the
// error beside the damage that it has found. The caller holds the sandbox's lock.
func (bl *Recorder) Check(rec *catalog.Record, repair bool) ([]snapshot.Problem, error) {
	var c checker
	for _, n := range rec.Generations() {
		dir := bl.BaseDir(rec.Name, n)
		c.checkWindow(dir)
		if k := c.checkList(dir); k != nil {
			c.checkTexts(k)
		}
	}
	_, err := bl.Stamps(rec.Name)
	c.addProblem(filepath.Join(bl.cat.Path(rec.Name), stampsFile), err)
	if repair {
		for i := range c.found {
			c.err = errors.Join(c.err, putAside(&c.found[i]))
		}
	}
	return c.found, c.err
}

// A checker collects what a check of a sandbox's base finds: the damaged files, and the errors of files that
// could not be checked.
type checker struct {
	found []snapshot.Problem
	err   error
}

// addProblem adds the file at path, of which err is the error of reading it, to the damaged files if err is
// [errs.ErrCorrupt], and another error to those of the check. A file that two entries name is added once.
func (c *checker) addProblem(path string, err error) {
	if !errors.Is(err, errs.ErrCorrupt) {
		c.err = errors.Join(c.err, err)
		return
	}
	known := func(p snapshot.Problem) bool { return p.Where == path }
	if !slices.ContainsFunc(c.found, known) {
		c.found = append(c.found, snapshot.Problem{Where: path, What: reason(err).Error()})
	}
}

// checkWindow checks the file in the directory dir of one base that says since when the real tree has the
// originals.
func (c *checker) checkWindow(dir string) {
	path := filepath.Join(dir, windowFile)
	const op = "reading the window of the baseline"
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.addProblem(path, errs.With(op, path, err))
		return
	}
	switch _, stored, ok := parseWindow(data); {
	case !ok && isNewer(data, windowHead):
		c.addProblem(path, errs.With(op, path, errNewer))
	case !ok:
		c.addProblem(path, errs.New(op, path, errs.ErrCorrupt, "the file is damaged"))
	case stored && !hasOriginals(dir):
		c.addProblem(path, errs.New(op, path, errs.ErrCorrupt, "the originals that were stored before are missing"))
	}
}

// checkList checks the list of originals in the directory dir of one base, and returns what it lists, or nil
// if it cannot be read.
func (c *checker) checkList(dir string) *Baseline {
	k, err := readDir(dir)
	if err == nil {
		return k
	}
	name := baselineFile
	if _, lerr := os.Lstat(filepath.Join(dir, name)); errors.Is(lerr, fs.ErrNotExist) {
		name = baselineJSON
	}
	c.addProblem(filepath.Join(dir, name), err)
	return nil
}

// checkTexts checks the stored texts of the originals that k lists.
func (c *checker) checkTexts(k *Baseline) {
	for path := range k.Nodes {
		e := k.Nodes[path]
		for n := &e; n != nil; n = n.Base {
			if n.Data == "" {
				continue
			}
			const op = "reading an original"
			at := filepath.Join(k.Dir, n.Data)
			damaged, err := damagedText(at, n.Data)
			if err != nil {
				err = errs.With(op, at, err)
			} else if damaged {
				err = errs.New(op, at, errs.ErrCorrupt, "the stored original of "+path+" is damaged")
			}
			c.addProblem(at, err)
		}
	}
}

// damagedText reports whether the file at path exists and its content has not the SHA-256 sum. An error means
// that it could not be read.
func damagedText(path, sum string) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	got := sha256.Sum256(data)
	return err == nil && hex.EncodeToString(got[:]) != sum, err
}

// reason returns what is wrong with a damaged file, of an error that also names the file.
func reason(err error) error {
	if e := (*errs.Error)(nil); errors.As(err, &e) && e.Err != nil {
		return e.Err
	}
	return err
}

// putAside renames the damaged file of p, and notes in p that this mended it. With a list of originals it
// also renames the window beside it, which says that they are stored.
func putAside(p *snapshot.Problem) error {
	if name := filepath.Base(p.Where); name == baselineFile || name == baselineJSON {
		window := filepath.Join(filepath.Dir(p.Where), windowFile)
		if err := os.Rename(window, window+asideSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.With("putting aside", window, err)
		}
	}
	if err := os.Rename(p.Where, p.Where+asideSuffix); err != nil {
		return errs.With("putting aside", p.Where, err)
	}
	p.Mended = true
	return nil
}
