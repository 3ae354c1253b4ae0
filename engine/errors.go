package engine

import (
	"errors"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/isolate"
)

// ErrWall says that a wall of a sandbox did not hold when it was tried, so that
// nothing was started in it.
var ErrWall = errors.New("a wall does not hold")

// ErrNotDirectory says that what was named as a workspace is a file.
var ErrNotDirectory = errors.New("it is a file, not a directory")

// Hints are the commands that mend an error, best first.
func Hints(err error) []string {
	var stage *StageError
	if errors.As(err, &stage) {
		return stage.Hints
	}
	var s *snapshot.Error
	if errors.As(err, &s) && len(s.Hints) > 0 {
		return s.Hints
	}
	var r *refusal
	if errors.As(err, &r) && len(r.Hints) > 0 {
		return r.Hints
	}
	var i *isolate.Error
	if errors.As(err, &i) {
		return i.Hints
	}
	return nil
}

// Kind is the sentinel of package snapshot that an error of the engine stands
// for, or nil: whichever package it came from.
func Kind(err error) error {
	if err == nil {
		return nil
	}
	if kind := snapshot.KindOf(err); kind != nil {
		return kind
	}
	var r *refusal
	if errors.As(err, &r) && r.kind() != nil {
		return r.kind()
	}
	if errors.Is(err, ErrWall) {
		return ErrWall
	}
	for _, k := range []struct{ theirs, kind error }{
		{isolate.ErrNotFound, snapshot.ErrNotFound},
		{isolate.ErrNotSupported, snapshot.ErrNotSupported},
		{isolate.ErrDenied, snapshot.ErrDenied},
		{isolate.ErrBusy, snapshot.ErrBusy},
		{isolate.ErrNoSpace, snapshot.ErrNoSpace},
		{isolate.ErrInterrupted, snapshot.ErrInterrupted},
		{isolate.ErrClosed, snapshot.ErrInterrupted},
	} {
		if errors.Is(err, k.theirs) {
			return k.kind
		}
	}
	return nil
}
