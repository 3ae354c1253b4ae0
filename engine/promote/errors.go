package promote

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// doing is the name of the operation in the errors of a promotion ([errs.Error.Op]).
const doing = "applying"

// refused returns an error of this kind, with hints for the user, that lists paths of the target, each with the
// reason why it cannot be promoted; nil if the list is empty.
func refused(l *pathlist.List, target string, kind error, hints ...string) error {
	if len(l.Paths) == 0 {
		return nil
	}
	return &errs.Error{Op: doing, Path: target, Kind: kind, Err: errors.New(l.String()), Hints: hints}
}

func drifted(target string, drifts []Drift) error {
	var r pathlist.List
	for _, d := range drifts {
		r.Add(d.Path, d.Why)
	}
	return refused(&r, target, errs.ErrDrifted)
}

// plain returns err with a text in which characters that a terminal interprets are escaped, because paths in
// it may contain any.
func plain(err error) error {
	var b strings.Builder
	for _, c := range err.Error() {
		if strconv.IsPrint(c) && c != '\uFFFD' {
			b.WriteRune(c)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		}
	}
	return fmt.Errorf("%s%.0w", b.String(), err) // err, without its own text
}

// wrap returns err as an errs.Error with op, path and a kind, unless it is one already; nil for nil.
func wrap(op, path string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: op, Path: path, Kind: kindOf(err), Err: plain(snapshot.ExplainStale(err))}
}

// fail returns err as an error of a promotion with an absolute path and a kind, unless it has them already.
func fail(path string, err error) error { return wrap(doing, path, err) }

// at returns err as an error of a promotion, with a path relative to the promotion's target,
// which it makes printable, unless err has a path already.
func at(path string, err error) error { return wrap(doing, pathlist.Printable(path), err) }

func kindOf(err error) error {
	kind := errs.KindOf(err)
	switch {
	case kind != nil:
		return kind
	case nodes.Missing(err):
		return errs.ErrNotFound
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return errs.ErrNotSupported
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return errs.ErrBusy
	}
	return errs.ErrCorrupt // EIO and its like
}
