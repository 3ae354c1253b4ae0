package undo

import (
	"errors"
	"slices"
	"testing"
)

func TestUndoRunsEveryStepOnceInReverse(t *testing.T) {
	var s Stack
	var ran []int
	boom := errors.New("boom")
	for i := range 3 {
		s.Push("take back", func() error {
			ran = append(ran, i)
			if i == 1 {
				return boom
			}
			return nil
		})
	}
	if err := s.undo(); !errors.Is(err, boom) || err.Error() != "could not take back: boom" {
		t.Errorf("Undo = %v", err)
	}
	if err := s.undo(); err != nil {
		t.Errorf("second Undo = %v", err)
	}
	if want := []int{2, 1, 0}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

func TestReleasedStepsNeverRun(t *testing.T) {
	work := func() (err error) {
		var s Stack
		defer s.UndoInto(&err)
		s.Push("take back", func() error { return errors.New("ran") })
		s.Release()
		return nil
	}
	if err := work(); err != nil {
		t.Error(err)
	}
}

func TestUndoIntoKeepsTheFirstCause(t *testing.T) {
	cause, second := errors.New("cause"), errors.New("second")
	work := func() (err error) {
		var s Stack
		defer s.UndoInto(&err)
		s.Push("take back", func() error { return second })
		return cause
	}
	if err := work(); !errors.Is(err, cause) || !errors.Is(err, second) {
		t.Error(err)
	}
}
