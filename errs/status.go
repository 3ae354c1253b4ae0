package errs

import "errors"

// ExitStatus returns the exit status with which a program of snapfs ends because of err, by
// docs/exit-codes.md: that of the error itself, or that of its kind, or 1 for an error without either; 0 for
// nil.
func ExitStatus(err error) int {
	if err == nil {
		return 0
	}
	if code, ok := ExitCode(err); ok {
		return code
	}
	kind := KindOf(err)
	for _, k := range []struct {
		kind   error
		status int
	}{
		{ErrInterrupted, 130},
		{ErrClosed, 130},
		{ErrInvalid, 2},
		{ErrNotFound, 3},
		{ErrExists, 4},
		{ErrBusy, 4},
		{ErrDrifted, 5},
		{ErrConflict, 5},
		{ErrNoSpace, 6},
		{ErrCorrupt, 8},
		{ErrNotSupported, 7},
		{ErrDenied, 7},
		{ErrReadOnly, 7},
	} {
		if errors.Is(kind, k.kind) {
			return k.status
		}
	}
	return 1
}
