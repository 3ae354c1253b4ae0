//go:build linux

package fusecow

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A record is the JSON text of the file that stands for a snapshot or a fork: the tree, the time, and the
// layers with the changes.
type record struct {
	// Format identifies the file as a record of this backend and holds the format version.
	Format string    `json:"format"`
	Tree   string    `json:"tree"`
	State  string    `json:"state,omitempty"` // name of a frozen state, by a [Freezer]
	Taken  time.Time `json:"taken"`
	Base   string    `json:"base,omitempty"` // base snapshot of a fork
	// Layers are the layers above the tree, the oldest first. The last layer of a fork is its own.
	Layers []string `json:"layers"`
	// Indexes has the highest index of each layer, if some were merged; see [layer.Options].
	Indexes []int `json:"places,omitempty"`
	// Own is the number of layers, from the oldest, that belong to a fork's first base.
	Own   int    `json:"own,omitempty"`
	Limit *limit `json:"limit,omitempty"`
}

const (
	formatMark    = "snapfs fusecow "
	format        = formatMark + "1"
	formatIndexes = formatMark + "2"
)

func (r *record) upper() string { return r.Layers[len(r.Layers)-1] }

// above returns a copy of the record of a fork with one more layer on top, named layer, which takes the
// fork's next changes.
func (r *record) above(layer string) record {
	next := *r
	next.Layers = append(slices.Clone(r.Layers), layer)
	if r.Indexes != nil {
		next.Indexes = append(slices.Clone(r.Indexes), r.index(len(r.Layers)-1)+1)
	}
	return next
}

// index returns the position of Layers[i] in the stack of layers; of a merged layer, which has the positions
// of all layers that it replaces, the highest.
func (r *record) index(i int) int {
	if r.Indexes == nil || i < 0 {
		return i
	}
	return r.Indexes[i]
}

// layersUpTo returns how many of the record's layers lie up to the layer index place, or -1 if one merged
// layer has indexes on both sides of it. While layers are being merged, records may name different layers for
// the same indexes.
func (r *record) layersUpTo(place int) int {
	for n := 0; n <= len(r.Layers); n++ {
		if r.index(n-1) == place {
			return n
		}
	}
	return -1
}

// merged returns a copy of the record in which one layer, whose name is layer, stands in place of
// Layers[from:to], from which it was merged.
func (r *record) merged(from, to int, layer string) record {
	next := *r
	next.Layers, next.Indexes = nil, nil
	for i, l := range r.Layers {
		if i >= from && i < to-1 {
			continue
		}
		if i == to-1 {
			l = layer
		}
		next.Layers, next.Indexes = append(next.Layers, l), append(next.Indexes, r.index(i))
	}
	if r.Own >= to {
		next.Own -= to - from - 1
	}
	return next
}

// read reads the record at path, the file that stands for a fork or, without fork, a snapshot. Errors: those
// of files, and *errs.Error in an *fs.PathError.
func read(path string, fork bool) (record, error) {
	var r record
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return r, err
	}
	if err := exactjson.Decode(text, &r); err != nil {
		if !strings.Contains(string(text), formatMark) {
			return r, because(errs.ErrDenied, path, "not a record of the fusecow backend")
		}
		return r, because(errs.ErrCorrupt, path, err.Error())
	}
	return r, r.check(path, fork)
}

// check returns an error for a record, the file of a snapshot or fork at path, of another backend or version,
// or with invalid values. fork says that it must be the record of a fork, not of a snapshot.
func (r *record) check(path string, fork bool) error {
	switch {
	case !strings.HasPrefix(r.Format, formatMark):
		return because(errs.ErrDenied, path, "not a record of the fusecow backend")
	case r.Format != format && r.Format != formatIndexes:
		return because(errs.ErrNotSupported, path, "written by a newer version of snapfs: "+r.Format)
	case r.Tree == "" || r.Taken.IsZero() || fork && (r.Base == "" || r.Own < 0 || r.Own >= len(r.Layers)):
		return because(errs.ErrCorrupt, path, "the record is incomplete")
	case r.Limit != nil && !validName(r.Limit.Quota):
		return because(errs.ErrCorrupt, path, "the record names an invalid quota")
	case slices.ContainsFunc(r.Layers, func(l string) bool { return !validName(l) }):
		return because(errs.ErrCorrupt, path, "the record names an invalid layer")
	}
	for i := range r.Indexes {
		if len(r.Indexes) != len(r.Layers) || r.Indexes[i] <= r.index(i-1) {
			return because(errs.ErrCorrupt, path, "the record has invalid layer indexes")
		}
	}
	return nil
}

// validName reports whether name can be that of an entry in layers/ or quotas/, so that a damaged record does
// not lead to files elsewhere.
func validName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00")
}

// write creates the file path with the record. The content reaches stable storage before any name that the
// file gets later. After an error there is no file.
func (r *record) write(path string) error {
	if r.Format = format; r.Indexes != nil {
		r.Format = formatIndexes
	}
	text, err := exactjson.EncodeIndent(r, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = vfs.SyncData(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// find reads the record at path of the fork id or, without fork, of the snapshot id, and checks that its
// layers exist.
func (b *backend) find(id, path string, fork bool) (record, error) {
	if !snapshot.ValidID(id) {
		return record{}, because(errs.ErrNotFound, "", "invalid id")
	}
	r, err := read(path, fork)
	if err != nil {
		return r, err
	}
	for _, l := range r.Layers {
		if unix.Access(b.layerPath(l)+"/log", unix.F_OK) != nil {
			return r, because(errs.ErrCorrupt, b.layerPath(l), "the layer is missing")
		}
	}
	return r, nil
}

func (b *backend) snapshot(id snapshot.ID) (record, error) {
	return b.find(string(id), b.snapshotPath(id), false)
}

func (b *backend) fork(id snapshot.ForkID) (record, error) {
	return b.find(string(id), b.forkPath(id), true)
}

func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
