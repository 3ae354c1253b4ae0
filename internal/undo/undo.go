// Package undo takes half-done work back: each step that succeeds pushes the
// step that undoes it, and a failure further on runs them in reverse, once.
package undo

import (
	"errors"
	"fmt"
)

// Stack holds the steps back. Its zero value is empty and ready. It is not
// safe for concurrent use.
//
//	var back undo.Stack
//	defer back.UndoInto(&err)
//	...
//	back.Push("remove the directory", func() error { return os.Remove(dir) })
//	...
//	back.Release() // all is done, nothing is to be taken back
type Stack struct{ steps []step }

type step struct {
	name string
	undo func() error
}

// Push adds the step that undoes what was just done. The name completes the
// sentence "could not ..." in the error of a step that fails.
func (s *Stack) Push(name string, undo func() error) {
	s.steps = append(s.steps, step{name, undo})
}

// Undo runs all steps, the last pushed first, every one of them even where
// another fails, and joins their errors. A second Undo does nothing.
func (s *Stack) Undo() error {
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

// UndoInto is for defer: it runs Undo and joins what goes wrong to *err. After
// a Release it does nothing.
func (s *Stack) UndoInto(err *error) {
	if e := s.Undo(); e != nil {
		*err = errors.Join(*err, e)
	}
}

// Release forgets all steps: what was done stays.
func (s *Stack) Release() { s.steps = nil }
