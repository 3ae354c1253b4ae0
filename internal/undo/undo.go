// Package undo reverts unfinished work: each step of the work that succeeds pushes its inverse, and a later
// failure runs the inverses in reverse order, once.
package undo

import (
	"errors"
	"fmt"
)

// A Stack holds the functions that undo the finished steps of some work, until the work is complete or has
// failed. The zero value is empty. It is not safe for concurrent use.
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

// Push adds the function that undoes the step of the work that was just made. If undo fails, the error says
// "could not" and name.
func (s *Stack) Push(name string, undo func() error) {
	s.steps = append(s.steps, step{name, undo})
}

// undo runs all functions of the stack, last pushed first, also after one has failed, and joins their errors.
// It empties the stack, so that a second call does nothing.
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

// UndoInto undoes all steps and joins the error of that to *err. It is for a defer statement; after Release
// it does nothing.
func (s *Stack) UndoInto(err *error) {
	if e := s.undo(); e != nil {
		*err = errors.Join(*err, e)
	}
}

// Release empties the stack without calling the functions that would undo the work, because the work is
// complete.
func (s *Stack) Release() { s.steps = nil }
