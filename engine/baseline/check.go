package baseline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// asideSuffix ends the name of a damaged file that a repair has put aside. It stays until the sandbox is
// removed.
const asideSuffix = ".damaged"

// damaged returns err with the command that repairs a sandbox's records, if err says that one is damaged.
func damaged(name string, err error) error {
	if e := (*errs.Error)(nil); errors.As(err, &e) && errors.Is(err, errs.ErrCorrupt) {
		e.Hints = []string{"snapfs doctor " + name + " --repair"}
	}
	return err
}

// Check looks for damage in what is stored of a sandbox's base: the originals of its changed files, the time
// from which the real tree has them, and the stamps of promoted files. repair puts damaged files aside. The
// originals in them are then not known, so that a change of the real tree there becomes a conflict. The
// caller holds the sandbox's lock.
func (bl *Recorder) Check(rec *catalog.Record, repair bool) (found []snapshot.Problem, err error) {
	for _, n := range rec.Generations() {
		err = errors.Join(err, checkDir(bl.BaseDir(rec.Name, n), repair, &found))
	}
	if _, serr := bl.Stamps(rec.Name); serr != nil {
		path := filepath.Join(bl.cat.Path(rec.Name), stampsFile)
		err = errors.Join(err, report(path, reason(serr), repair, &found))
	}
	return found, err
}

// checkDir checks the directory dir with the originals of one base of a sandbox, as [Recorder.Check] does.
func checkDir(dir string, repair bool, found *[]snapshot.Problem) error {
	window := filepath.Join(dir, windowFile)
	data, err := os.ReadFile(window)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report(window, err, repair, found)
	}
	_, stored, ok := parseWindow(data)
	if exists && !ok {
		err = report(window, errors.New("the file is damaged"), repair, found)
		exists = false
	} else if err = nil; exists && stored && !hasOriginals(dir) {
		err = report(window, errors.New("the originals that were stored before are missing"), repair, found)
		exists = false
	}
	k, kerr := readDir(dir)
	if kerr != nil {
		name := baselineFile
		if _, lerr := os.Lstat(filepath.Join(dir, name)); lerr != nil {
			name = baselineJSON
		}
		err = errors.Join(err, report(filepath.Join(dir, name), reason(kerr), repair, found))
		if repair && exists { // it says that the originals are stored
			err = errors.Join(err, os.Rename(window, window+asideSuffix))
		}
		return err
	}
	for path := range k.Nodes {
		e := k.Nodes[path]
		for n := &e; n != nil; n = n.Base {
			if n.Data != "" && damagedText(filepath.Join(dir, n.Data), n.Data) {
				err = errors.Join(err, report(filepath.Join(dir, n.Data), errors.New("the stored original of "+path+" is damaged"), repair, found))
			}
		}
	}
	return err
}

// damagedText reports whether the file at path exists and its content has not the SHA-256 sum.
func damagedText(path, sum string) bool {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	got := sha256.Sum256(data)
	return err != nil || hex.EncodeToString(got[:]) != sum
}

// reason returns what is wrong with a damaged file, of an error that also names the file.
func reason(err error) error {
	if e := (*errs.Error)(nil); errors.As(err, &e) && e.Err != nil {
		return e.Err
	}
	return err
}

// report adds the damage of the file at path to found, and with repair puts the file aside. A file that two
// entries name is reported once.
func report(path string, what error, repair bool, found *[]snapshot.Problem) error {
	for _, p := range *found {
		if p.Where == path {
			return nil
		}
	}
	p := snapshot.Problem{Where: path, What: what.Error()}
	if repair {
		if err := os.Rename(path, path+asideSuffix); err != nil {
			return errs.With("putting aside", path, err)
		}
		p.Mended = true
	}
	*found = append(*found, p)
	return nil
}
