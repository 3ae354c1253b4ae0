package engine

import (
	"errors"

	"github.com/snapfs/snapfs/errs"
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
	var s *errs.Error
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
	if kind := errs.KindOf(err); kind != nil {
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
		{isolate.ErrNotFound, errs.ErrNotFound},
		{isolate.ErrNotSupported, errs.ErrNotSupported},
		{isolate.ErrDenied, errs.ErrDenied},
		{isolate.ErrBusy, errs.ErrBusy},
		{isolate.ErrNoSpace, errs.ErrNoSpace},
		{isolate.ErrInterrupted, errs.ErrInterrupted},
		{isolate.ErrClosed, errs.ErrInterrupted},
	} {
		if errors.Is(err, k.theirs) {
			return k.kind
		}
	}
	return nil
}
