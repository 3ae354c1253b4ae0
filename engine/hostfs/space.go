package hostfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// heavyFiles (a number of files) and heavyBytes are the size of a tree from which on copying it for a sandbox
// takes so long that the user gets a notice.
const (
	heavyFiles = 20_000
	heavyBytes = snapshot.Bytes(256 << 20)
)

// Estimate returns ErrNoSpace if the copies of trees that a copying backend would make do not fit on its
// disk. Otherwise it reports a large copy as a notice. Each tree is copied twice, as base and as fork.
func (hf *Host) Estimate(ctx context.Context, choices []Choice) error {
	taken := map[string]snapshot.Bytes{}
	for _, c := range choices {
		b, ok := c.Backend.(snapshot.Estimator)
		if !ok {
			continue
		}
		w, err := b.Estimate(ctx, snapshot.Tree{Path: c.Tree})
		if errors.Is(err, errs.ErrInterrupted) {
			return err
		}
		if err != nil {
			continue // the copy will return it, or the tree has just vanished
		}
		what := fmt.Sprintf("%v in %d files", w.Bytes, w.Files)
		if taken[c.Driver] += 2 * w.Bytes; w.Room >= 0 && taken[c.Driver] > w.Room {
			return &errs.Error{
				Op: "copying", Component: c.Driver, Path: c.Tree, Kind: errs.ErrNoSpace,
				Err:   fmt.Errorf("needs 2 × %s; %v free", what, w.Room),
				Hints: []string{"snapfs doctor (backends that copy nothing)"},
			}
		}
		if w.Files >= heavyFiles || w.Bytes >= heavyBytes {
			hf.notice(fmt.Sprintf("the backend %s copies all of %s, twice: %s each time", c.Driver, c.Tree, what))
		}
	}
	return nil
}

// Skip returns a function that reports whether a path relative to a tree belongs to snapfs itself, such as
// the state directory. Comparisons of trees leave such paths out.
func (hf *Host) Skip(b snapshot.Backend, tree string) func(string) bool {
	ours := []string{hf.cat.Dir()}
	if hidden := b.Facts().Hidden; hidden != "" {
		ours = append(ours, hidden)
	}
	for i, dir := range ours { // once, since the function is called for each file
		if rel, err := filepath.Rel(tree, dir); err == nil {
			ours[i] = rel
		}
	}
	return func(path string) bool {
		return strings.HasPrefix(filepath.Base(path), ".snapfs-apply-") || // backups of promote
			slices.Contains(ours, path)
	}
}

// CheckMeter returns an error if a backend of choices cannot measure the disk space that only snapshots hold,
// which a retention rule by size requires.
func CheckMeter(ctx context.Context, choices []Choice) error {
	for _, c := range choices {
		meter, ok := c.Backend.(snapshot.Meter)
		if !ok {
			return NoMeter(c.Tree, c.Driver)
		}
		if _, err := meter.MeasureExclusive(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// NoMeter returns the error for a retention rule by size where the backend of tree, of this driver, cannot measure
// the disk space that only snapshots hold.
func NoMeter(tree, driver string) error {
	return &errs.Error{
		Op: "keeping snapshots by size", Component: driver, Path: tree, Kind: errs.ErrNotSupported,
		Err:   errors.New("size not known: the backend " + driver + " cannot measure the disk space that only snapshots hold"),
		Hints: []string{"snapfs new --keep-snapshots N --keep-snapshots-for DURATION …", "snapfs new --backend overlay …"},
	}
}
