package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestErrorNamesItsPlaceAndLeavesEmptyPartsOut(t *testing.T) {
	for want, e := range map[string]*Error{
		"forking s1: btrfs: /home/ann: no such file or directory": {
			Op: "forking", Backend: "btrfs", ID: "s1", Path: "/home/ann", Kind: ErrNotFound, Err: syscall.ENOENT,
		},
		`reading: "/a\nsnapfs: applied": not found`: {Op: "reading", Path: "/a\nsnapfs: applied", Kind: ErrNotFound}, // one line
		"capturing: not supported":                  {Op: "capturing", Kind: ErrNotSupported},
		"s1: already exists":                        {ID: "s1", Kind: ErrExists},
		"removing s1: plain: in use":                {Op: "removing", ID: "s1", Backend: "plain", Kind: ErrBusy},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestErrorIsBothItsKindAndItsCause(t *testing.T) {
	err := fmt.Errorf("outer: %w", &Error{Kind: ErrNoSpace, Err: syscall.ENOSPC})
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Error("kind or cause is lost")
	}
	if errors.Is(err, ErrBusy) {
		t.Error("it matches a kind it is not")
	}
	if n := len((&Error{}).Unwrap()); n != 0 {
		t.Errorf("an empty error unwraps to %d errors", n)
	}
}

func TestKindOfReadsAnErrnoAndKeepsAKind(t *testing.T) {
	for err, want := range map[error]error{
		&fs.PathError{Op: "open", Err: syscall.ENOENT}: ErrNotFound, &Error{Kind: ErrDrifted, Err: syscall.EPERM}: ErrDrifted,
		syscall.EDQUOT: ErrNoSpace, syscall.EACCES: ErrDenied, syscall.EEXIST: ErrExists, syscall.EROFS: ErrReadOnly,
		context.Canceled: ErrInterrupted, errors.New("odd"): nil,
	} {
		if got := KindOf(fmt.Errorf("outer: %w", err)); !errors.Is(got, want) {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}
