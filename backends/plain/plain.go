// Package plain keeps snapshots and forks as ordinary copies of files: slow,
// unprivileged, obviously right. It is the oracle that the other backends are
// measured against, and what is left where nothing better works; it is never
// chosen without being asked for.
//
// # Layout
//
//	snapshots/<id>/{mark,tree}        a snapshot; its mark says of what and when
//	forks/<id>/{mark,tree}            a fork; its mark says from which snapshot
//	snapshots|forks/<id>.part/        the same, half made
//	trash/                            what is removed, or not yet begun
//
// Whatever has a mark was born in the trash and renamed out of it with its mark
// already inside, is renamed from <id>.part to <id> when it is whole, and
// renamed back into the trash when it is removed. So there is no instant at
// which a killed process leaves something that has no mark, or that answers to
// its name without being whole, or that nobody would ever clear away.
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

// Driver opens this backend. It holds any tree that the process can read.
func Driver() snapshot.Driver {
	return snapshot.Driver{Name: name, Open: Open}
}

// Open answers with the backend whose data is in place.Dir. It writes nothing.
// Errors: ErrNotSupported where place.Dir is not absolute.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	if !filepath.IsAbs(place.Dir) {
		return nil, &errs.Error{
			Op: "opening", Component: name, Path: place.Dir, Kind: errs.ErrNotSupported,
			Err: errors.New("the place for copies is not an absolute path"),
		}
	}
	return &backend{dir: filepath.Clean(place.Dir)}, nil
}

// A backend has no state but its directory, so that any number of them, in
// any number of processes, may work on the same one.
type backend struct{ dir string }

func (b *backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Frozen: true, CopiesWhole: true, Unit: snapshot.ByFile, Durable: true, DirRename: true,
	}
}

// fail makes err the contract's error. A *fs.PathError lends it its path.
func fail(op, id string, err error) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: errs.KindOfFile(err), Err: err}
	var at *fs.PathError
	if errors.As(err, &at) {
		e.Path, e.Err = at.Path, at.Err
	}
	var r *reason
	if errors.As(err, &r) {
		e.Kind = r.kind
	}
	if errors.Is(e.Kind, errs.ErrNoSpace) {
		e.Hints = []string{"snapfs gc"}
	}
	return e
}

// because is a failure of a kind, in words of our own.
func because(kind error, path, why string) error {
	return &fs.PathError{Op: "copy", Path: path, Err: &reason{kind, why}}
}

type reason struct {
	kind error
	why  string
}

func (r *reason) Error() string { return r.why }
func (r *reason) Unwrap() error { return r.kind }
