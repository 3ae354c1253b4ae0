// Package undo reverts unfinished work: each step that succeeds pushes its inverse, and a later failure runs
// the inverses in reverse order, once.
package undo

import (
	"errors"
	"fmt"
)

// A Stack holds the inverse steps. The zero value is empty. It is not safe for concurrent use.
//
//	var back undo.Stack
//	defer back.UndoInto(&err)
//	...
//	back.Push("remove the directory", func() error { return os.Remove(dir) })
//	...
//	back.Release() // the work is complete
type Stack struct{ steps []step }

type step struct {
	name string
	undo func() error
}

// Push adds the inverse of the last step. The name completes the sentence "could not ..." in the error if it
// fails.
func (s *Stack) Push(name string, undo func() error) {
	s.steps = append(s.steps, step{name, undo})
}

// undo runs all steps, last pushed first, also after one has failed, and joins their errors. A second Undo does
// nothing.
func (s *Stack) undo() error {
	var errs []error
	for len(s.steps) > 0 {
		last := s.steps[len(s.steps)-1]
		s.steps = s.steps[:len(s.steps)-1] // first: a step that panics is not run again
		if err := last.undo(); err != nil {
			errs = append(errs, fmt.Errorf("could not %s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}

// UndoInto runs Undo and joins its error to *err; it is for a defer statement. After Release
// it does nothing.
func (s *Stack) UndoInto(err *error) {
	if e := s.undo(); e != nil {
		*err = errors.Join(*err, e)
	}
}

// Release discards all steps, because the work is complete.
func (s *Stack) Release() { s.steps = nil }
