package baseline

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// StampsOf holds the stamps (inode and change time) of the paths that the promotions of one sandbox changed:
// by target directory, then by relative path. A real path that still has its stamp is as the promotion left
// it.
type StampsOf map[string]map[string]promote.Stamp

// In returns the stamps (inode and change time after a promotion) of all promoted paths in the directory
// tree, by path relative to it.
func (s StampsOf) In(tree string) map[string]promote.Stamp {
	all := map[string]promote.Stamp{}
	for root, stamps := range s {
		for path, stamp := range stamps {
			if rel, err := filepath.Rel(tree, filepath.Join(root, path)); err == nil && filepath.IsLocal(rel) {
				all[rel] = stamp
			}
		}
	}
	return all
}

const stampsFile = "applied.json"

// Stamps reads the stamps of the files that promotions of a sandbox wrote: their inodes and change times
// then. Without promotions the set is empty. Errors: errs.ErrCorrupt, only if the content of the file is
// damaged; errors of reading the file.
func (bl *Recorder) Stamps(name string) (StampsOf, error) {
	known := StampsOf{}
	data, err := os.ReadFile(filepath.Join(bl.cat.Path(name), stampsFile))
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	const op = "reading the promotion stamps of"
	if err != nil {
		return nil, errs.With(op, name, err)
	}
	if err := exactjson.Decode(data, &known); err != nil {
		return nil, withRepairHint(name, &errs.Error{Op: op, Path: name, Kind: errs.ErrCorrupt, Err: err})
	}
	return known, nil
}

// Remember updates the stamps of a sandbox after a promotion in the directory root. It stores the stamps own, and
// removes the stored ones of the other files that the promotion wrote. It does nothing if the sandbox has been removed.
func (bl *Recorder) Remember(name, root string, wrote, own map[string]promote.Stamp) error {
	if len(wrote) == 0 {
		return nil
	}
	known, err := bl.Stamps(name)
	if err != nil {
		return err
	}
	if known[root] == nil {
		known[root] = map[string]promote.Stamp{}
	}
	maps.DeleteFunc(known[root], func(path string, _ promote.Stamp) bool {
		_, again := wrote[path]
		return again
	})
	maps.Copy(known[root], own)
	return bl.writeStamps(name, known)
}

// writeStamps replaces the stamps stored for a sandbox. It does nothing if the sandbox has been removed.
func (bl *Recorder) writeStamps(name string, known StampsOf) error {
	data, err := exactjson.EncodeIndent(known, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the promotion stamps of %s: %w", name, err)
	}
	if err := bl.cat.WriteFile(name, stampsFile, append(data, '\n')); !errors.Is(err, errs.ErrNotFound) {
		return err
	}
	return nil
}

// Forget removes those stamps of a sandbox whose paths match: match gets them relative to the directory root. A
// promotion calls it for files that the sandbox promoted and then changed again, where the user has now chosen the real
// version. The real file still has its stamp, but it is not the sandbox's version any more.
func (bl *Recorder) Forget(name, root string, match func(path string) bool) error {
	known, err := bl.Stamps(name)
	if err != nil {
		return err
	}
	found := false
	for dir, stamps := range known {
		maps.DeleteFunc(stamps, func(path string, _ promote.Stamp) bool {
			rel, err := filepath.Rel(root, filepath.Join(dir, path))
			gone := err == nil && filepath.IsLocal(rel) && match(rel)
			found = found || gone
			return gone
		})
	}
	if !found {
		return nil
	}
	return bl.writeStamps(name, known)
}

// ForgetSince removes those stamps of a sandbox that promotions, or their undo, have stored since an instant. A
// rollback to a state of that instant calls it: against files that were promoted later, taken for unchanged, the old
// state would look like the sandbox's own change. It keeps the stamps of directories, which hold no content. It also
// removes the stamps of deleted files, which have no time: without them a merge compares with the original.
func (bl *Recorder) ForgetSince(name string, since time.Time) error {
	known, err := bl.Stamps(name)
	if err != nil {
		return err
	}
	const tick = time.Second // more than the clock that stamps files is behind the one that dates states
	before, after := 0, 0
	for root, stamps := range known {
		before += len(stamps)
		maps.DeleteFunc(stamps, func(path string, s promote.Stamp) bool {
			if s.Ino != 0 && s.CTime.Before(since.Add(-tick)) {
				return false
			}
			st, err := os.Lstat(filepath.Join(root, path))
			return err != nil || !st.IsDir()
		})
		after += len(stamps)
	}
	if before == after {
		return nil
	}
	return bl.writeStamps(name, known)
}
