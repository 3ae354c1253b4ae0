package engine

import (
	"errors"

	"github.com/snapfs/snapfs/errs"
)

// A refusal is an error on its way from a keeper to another process: what is
// printed, the sentinel that it stands for, and what mends it.
type refusal struct {
	Message string   `json:"message"`
	Kind    string   `json:"kind,omitempty"`
	Hints   []string `json:"hints,omitempty"`
}

func refusalOf(err error) *refusal {
	r := &refusal{Message: err.Error(), Hints: Hints(err)}
	if kind := Kind(err); kind != nil {
		r.Kind = kind.Error()
	}
	if errors.Is(err, ErrLimit) {
		r.Kind = ErrLimit.Error()
	}
	return r
}

// Error makes it an error again, where it arrives.
func (r *refusal) Error() string { return r.Message }

// Unwrap gives its sentinel to errors.Is.
func (r *refusal) Unwrap() error { return r.kind() }

// kind is nil where it stands for none, or for one of another version.
func (r *refusal) kind() error {
	for _, kind := range []error{
		errs.ErrNotFound, errs.ErrExists, errs.ErrBusy, errs.ErrReadOnly, errs.ErrNoSpace, errs.ErrNotSupported,
		errs.ErrConflict, errs.ErrDrifted, errs.ErrCorrupt, errs.ErrInterrupted, errs.ErrDenied, ErrLimit, ErrWall,
	} {
		if r.Kind == kind.Error() {
			return kind
		}
	}
	return nil
}
