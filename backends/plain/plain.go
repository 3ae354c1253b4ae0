package plain

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

const name = "plain"

// Driver is the driver of this backend, which copies every file. It accepts any tree that the process can
// read.
var Driver = snapshot.Driver{Name: name, Open: Open}

// Open returns the backend whose data is in place.Dir. It writes nothing. Errors: ErrNotSupported
// if place.Dir is not absolute.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	if !filepath.IsAbs(place.Dir) {
		return nil, &errs.Error{
			Op: "opening", Component: name, Path: place.Dir, Kind: errs.ErrNotSupported,
			Err: errors.New("the directory for copies is not an absolute path"),
		}
	}
	return &backend{dir: filepath.Clean(place.Dir)}, nil
}

// A backend stores snapshots and forks as copies in its directory. It has no other state, so that any number
// of processes may use the same one.
type backend struct{ dir string }

func (b *backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Frozen: true, CopiesWhole: true, Unit: snapshot.ByFile, Durable: true, DirRename: true,
	}
}

// fail wraps err in an [*errs.Error] with the operation op, the id of a snapshot or fork, and the path of a
// *fs.PathError.
func fail(op, id string, err error) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: errs.KindOfFile(err), Err: err}
	var at *fs.PathError
	if errors.As(err, &at) {
		e.Path, e.Err = at.Path, at.Err
	}
	if errors.Is(e.Kind, errs.ErrNoSpace) {
		e.Hints = []string{"snapfs gc"}
	}
	return e
}

// because returns an error for something that the backend cannot do: of this kind, about path, with the
// reason why as text.
func because(kind error, path, why string) error {
	return &fs.PathError{Op: "copy", Path: path, Err: &errs.Error{Kind: kind, Err: errors.New(why)}}
}
