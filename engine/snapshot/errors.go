package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// The kinds of failure. Test for them with errors.Is.
var (
	ErrNotFound     = errors.New("not found")
	ErrExists       = errors.New("already exists")
	ErrBusy         = errors.New("in use")
	ErrReadOnly     = errors.New("read-only")
	ErrNoSpace      = errors.New("no space left")
	ErrNotSupported = errors.New("not supported")
	ErrConflict     = errors.New("conflict")
	ErrDrifted      = errors.New("drifted")
	ErrCorrupt      = errors.New("corrupt")
	ErrInterrupted  = errors.New("interrupted")
	ErrDenied       = errors.New("permission denied")
)

// Error is a failure with its place. It prints as "op: backend: path: cause"
// with the empty parts left out, and a path quoted that is not printable, and unwraps to both its Kind and its Err.
type Error struct {
	// Op is what was being done, as a gerund: "forking", "capturing".
	Op string
	// Backend is the backend's name, or "".
	Backend string
	// ID is the snapshot, fork or sandbox concerned, or "".
	ID string
	// Path is the tree or file concerned, or "".
	Path string
	// Kind is one of the sentinels of this package.
	Kind error
	// Err is the cause, or nil when Kind says it all.
	Err error
	// Hints are commands that mend it, best first.
	Hints []string
}

func (e *Error) Error() string {
	path := e.Path
	if strings.ContainsFunc(path, unicode.IsControl) { // a line break above all: it would begin a line of its own
		path = strconv.Quote(path)
	}
	parts := []string{strings.TrimSpace(e.Op + " " + e.ID), e.Backend, path}
	why := cmp.Or(e.Err, e.Kind)
	if why == context.Canceled { //nolint:errorlint // what wraps it has words of its own
		why = ErrInterrupted
	}
	if why != nil {
		parts = append(parts, why.Error())
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ": ")
}

// Unwrap gives both the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// KindOf gives the sentinel that an error of the operating system stands for,
// or nil where there is none.
func KindOf(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Kind != nil {
		return e.Kind
	}
	return first(err, []kind{
		{syscall.ENOSPC, ErrNoSpace},
		{syscall.EDQUOT, ErrNoSpace},
		{syscall.EROFS, ErrReadOnly},
		{syscall.EBUSY, ErrBusy},
		{syscall.ESTALE, ErrDrifted},
		{syscall.EOPNOTSUPP, ErrNotSupported},
		{context.Canceled, ErrInterrupted},
		{context.DeadlineExceeded, ErrInterrupted},
		{fs.ErrNotExist, ErrNotFound},
		{fs.ErrExist, ErrExists},
		{fs.ErrPermission, ErrDenied},
	})
}

// Told is an error of reading a file of a sandbox, in words that help. ESTALE is that of a large
// one which was changed in part: the rest was the real file's, and somebody has written to that since.
func Told(err error) error {
	if !errors.Is(err, syscall.ESTALE) {
		return err
	}
	return fmt.Errorf("the sandbox had copied only what it changed of it, and the real file, which had the rest, was written to since "+
		"(take that with --theirs, or write all of it anew inside): %w", err)
}

// KindOfFile is KindOf for who copies trees: it knows what can be wrong with a
// file and with a crowded system too, and what nobody foresaw (an input/output
// error) is ErrCorrupt: it is not to be trusted.
func KindOfFile(err error) error {
	if k := KindOf(err); k != nil {
		return k
	}
	if k := first(err, []kind{
		{syscall.ENOTEMPTY, ErrExists},
		{syscall.EFBIG, ErrNoSpace},
		{syscall.ENOTDIR, ErrNotSupported},
		{syscall.ELOOP, ErrNotSupported},
		{syscall.EMLINK, ErrNotSupported},
		{syscall.EINVAL, ErrNotSupported},
		{syscall.ENAMETOOLONG, ErrNotSupported},
		{syscall.EMFILE, ErrBusy},
		{syscall.ENFILE, ErrBusy},
		{syscall.ENOMEM, ErrBusy},
	}); k != nil {
		return k
	}
	return ErrCorrupt
}

// A kind is what an error of the operating system stands for.
type kind struct{ os, kind error }

// first is the kind of the first of a table that an error is, or nil.
func first(err error, table []kind) error {
	for _, k := range table {
		if errors.Is(err, k.os) {
			return k.kind
		}
	}
	return nil
}
