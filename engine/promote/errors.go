package promote

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// doing is what this package says it was doing.
const doing = "applying"

// Refused names all the paths for which something was refused. It is the cause
// within a [errs.Error].
type Refused struct {
	// Why each of them was, by path; Paths in order.
	Paths []string
	Why   map[string]string
}

// Error names the first twenty.
func (r *Refused) Error() string {
	const most = 20
	var b strings.Builder
	for i, path := range r.Paths[:min(len(r.Paths), most)] {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(Printable(path) + ": " + r.Why[path])
	}
	if more := len(r.Paths) - most; more > 0 {
		b.WriteString("; and " + strconv.Itoa(more) + " more")
	}
	return b.String()
}

func (r *Refused) add(path, why string) {
	if r.Why == nil {
		r.Why = map[string]string{}
	}
	if _, ok := r.Why[path]; !ok {
		r.Paths = append(r.Paths, path)
		r.Why[path] = why
	}
}

// err is nil where nothing was refused.
func (r *Refused) err(target string, kind error, hints ...string) error {
	if len(r.Paths) == 0 {
		return nil
	}
	return &errs.Error{Op: doing, Path: target, Kind: kind, Err: r, Hints: hints}
}

// Printable is a path as it may be shown: quoted where it holds anything that a
// terminal would not print.
func Printable(path string) string {
	for _, c := range path {
		if !strconv.IsPrint(c) || c == '\uFFFD' {
			return strconv.Quote(path)
		}
	}
	return path
}

func drifted(target string, drifts []Drift) error {
	var r Refused
	for _, d := range drifts {
		r.add(d.Path, d.Why)
	}
	return r.err(target, errs.ErrDrifted)
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
	return &errs.Error{Op: doing, Path: Printable(path), Kind: kindOf(err), Err: plain{snapshot.ExplainStale(err)}}
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
