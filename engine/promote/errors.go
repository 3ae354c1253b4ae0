package promote

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// doing is what this package says it was doing.
const doing = "applying"

// refused returns an error for a list of refused paths of the target, nil if it is empty.
func refused(l *pathlist.List, target string, kind error, hints ...string) error {
	if len(l.Paths) == 0 {
		return nil
	}
	return &errs.Error{Op: doing, Path: target, Kind: kind, Err: l, Hints: hints}
}

func drifted(target string, drifts []Drift) error {
	var r pathlist.List
	for _, d := range drifts {
		r.Add(d.Path, d.Why)
	}
	return refused(&r, target, errs.ErrDrifted)
}

// plain is an error that prints without what a terminal would act upon: paths
// within it may hold anything.
type plain struct{ error }

func (p plain) Unwrap() error { return p.error }

func (p plain) Error() string {
	var b strings.Builder
	text := p.error.Error()
	for _, c := range text {
		if strconv.IsPrint(c) && c != '\uFFFD' {
			b.WriteRune(c)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		}
	}
	return b.String()
}

// fail gives an error its place and kind, once.
func fail(path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: doing, Path: path, Kind: kindOf(err), Err: plain{snapshot.ExplainStale(err)}}
}

// at gives an error of one path its place.
func at(path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: doing, Path: pathlist.Printable(path), Kind: kindOf(err), Err: plain{snapshot.ExplainStale(err)}}
}

// missing reports whether an error says that a path leads nowhere: it is not
// there, or something on the way is no directory any more.
func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func kindOf(err error) error {
	kind := errs.KindOf(err)
	switch {
	case kind != nil:
		return kind
	case missing(err):
		return errs.ErrNotFound
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return errs.ErrNotSupported
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return errs.ErrBusy
	}
	return errs.ErrCorrupt // EIO and its like
}
