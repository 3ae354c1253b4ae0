package errs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestErrorNamesItsPlaceAndLeavesEmptyPartsOut(t *testing.T) {
	for want, e := range map[string]*Error{
		"forking s1: btrfs: /home/ann: no such file or directory": {
			Op: "forking", Component: "btrfs", Subject: "s1", Path: "/home/ann", Kind: ErrNotFound, Err: syscall.ENOENT,
		},
		`reading: "/a\nsnapfs: applied": not found`: {Op: "reading", Path: "/a\nsnapfs: applied", Kind: ErrNotFound}, // one line
		"capturing: not supported":                  {Op: "capturing", Kind: ErrNotSupported},
		"s1: already exists":                        {Subject: "s1", Kind: ErrExists},
		"removing s1: plain: in use":                {Op: "removing", Subject: "s1", Component: "plain", Kind: ErrBusy},
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

func TestNewAndWrapFillTheError(t *testing.T) {
	err := New("mounting", "/proc", ErrDenied, "not in a user namespace", "snapfs doctor")
	if got := err.Error(); got != "mounting: /proc: not in a user namespace" || !errors.Is(err, ErrDenied) {
		t.Errorf("New gives %q", got)
	}
	if got := New("mounting", "", ErrBusy, "").Error(); got != "mounting: in use" {
		t.Errorf("New without a text gives %q", got)
	}
	if err := Wrap("reading", "/etc/motd", nil); err != nil {
		t.Errorf("Wrap of nil is %v", err)
	}
	wrapped := Wrap("reading", "/etc/motd", fmt.Errorf("outer: %w", syscall.ENOENT))
	if got := wrapped.Error(); got != "reading: /etc/motd: outer: no such file or directory" || !errors.Is(wrapped, ErrNotFound) {
		t.Errorf("Wrap gives %q", got)
	}
	if err := With("reading", "/etc/motd", nil, "snapfs gc"); err != nil {
		t.Errorf("With of nil is %v", err)
	}
	with := With("copying", "/", wrapped, "snapfs gc")
	if got := with.Error(); got != "copying: /: "+wrapped.Error() || !slices.Equal(HintsOf(with), []string{"snapfs gc"}) || !errors.Is(KindOf(with), ErrNotFound) {
		t.Errorf("With gives %q", got)
	}
	if again := Wrap("copying", "/", wrapped); again != wrapped { //nolint:errorlint // identity is what is tested
		t.Errorf("Wrap of an *Error gives %q", again)
	}
}

type withHints struct{ hints []string }

func (withHints) Error() string     { return "with hints" }
func (w withHints) Hints() []string { return w.hints }

type withStatus struct{}

func (withStatus) Error() string { return "with a status" }
func (withStatus) ExitCode() int { return 124 }

func TestHintsAreFoundThroughWrapping(t *testing.T) {
	inner := New("mounting", "", ErrDenied, "", "snapfs doctor")
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"nil":               {nil, nil},
		"none":              {syscall.ENOENT, nil},
		"an *Error":         {inner, []string{"snapfs doctor"}},
		"wrapped":           {fmt.Errorf("outer: %w", inner), []string{"snapfs doctor"}},
		"cause of an Error": {&Error{Op: "starting", Err: inner}, []string{"snapfs doctor"}},
		"outermost":         {&Error{Err: inner, Hints: []string{"snapfs gc"}}, []string{"snapfs gc"}},
		"joined":            {errors.Join(errors.New("odd"), inner), []string{"snapfs doctor"}},
		"another type":      {fmt.Errorf("outer: %w", withHints{[]string{"snapfs undo"}}), []string{"snapfs undo"}},
		"another, empty":    {errors.Join(withHints{}, inner), []string{"snapfs doctor"}},
	} {
		if got := HintsOf(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestHasOpLooksIntoTheWholeTree(t *testing.T) {
	bare, placed := &Error{Path: "/etc", Kind: ErrBusy}, New("mounting", "", ErrBusy, "")
	if HasOp(nil) || HasOp(syscall.EIO) || HasOp(fmt.Errorf("outer: %w", bare)) {
		t.Error("an error without an Op has one")
	}
	if !HasOp(placed) || !HasOp(errors.Join(bare, fmt.Errorf("outer: %w", placed))) {
		t.Error("an Op is overlooked")
	}
}

func TestExitCodeIsThatOfAnErrorInTheTree(t *testing.T) {
	if code, ok := ExitCode(&Error{Op: "starting", Kind: ErrBusy, Err: fmt.Errorf("outer: %w", withStatus{})}); code != 124 || !ok {
		t.Errorf("got %d, %v", code, ok)
	}
	if code, ok := ExitCode(New("starting", "", ErrBusy, "")); code != 0 || ok {
		t.Errorf("an error without a status: got %d, %v", code, ok)
	}
}

func TestKindOfReadsAnErrnoAndKeepsAKind(t *testing.T) {
	for err, want := range map[error]error{
		&fs.PathError{Op: "open", Err: syscall.ENOENT}: ErrNotFound, &Error{Kind: ErrDrifted, Err: syscall.EPERM}: ErrDrifted,
		syscall.EDQUOT: ErrNoSpace, syscall.EACCES: ErrDenied, syscall.EEXIST: ErrExists, syscall.EROFS: ErrReadOnly,
		context.Canceled: ErrInterrupted, fmt.Errorf("odd: %w", ErrInvalid): ErrInvalid, errors.New("odd"): nil,
	} {
		if got := KindOf(fmt.Errorf("outer: %w", err)); !errors.Is(got, want) {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}

func TestQuotedIsOneArgumentOfAShell(t *testing.T) {
	for arg, want := range map[string]string{"/a/.b-c_1": "/a/.b-c_1", "**/x": "'**/x'", "it's": `'it'\''s'`, "": "''", "a b": "'a b'", "é": "'é'"} {
		if got := Quoted(arg); got != want {
			t.Errorf("%q: %s, want %s", arg, got, want)
		}
	}
	for arg, want := range map[string]string{
		"e\x1b[31m\n": `$'e\033[31m\012'`, "it's\a": `$'it\047s\007'`, `a\b` + "\r": `$'a\134b\015'`, "\xff/x y": `$'\377/x y'`, "a\u202eb": `$'a\342\200\256b'`, "\u009b": `$'\302\233'`,
	} {
		if got := Quoted(arg); got != want {
			t.Errorf("%q: %s, want %s", arg, got, want)
		}
		if got := ShellQuoted(arg); !strings.Contains(got, arg[:1]) || got[0] != '\'' {
			t.Errorf("%q, for every shell: %q", arg, got)
		}
	}
}

// TestEachKindHasAnExitStatus: of docs/exit-codes.md, and not that of another failure.
func TestEachKindHasAnExitStatus(t *testing.T) {
	for _, kind := range kinds {
		if status := ExitStatus(New("doing", "x", kind, "why")); status <= 1 {
			t.Errorf("%v: status %d", kind, status)
		}
	}
	for err, want := range map[error]int{nil: 0, errors.New("x"): 1, NewStatus(9, "x"): 9, New("doing", "", ErrBusy, ""): 4} {
		if got := ExitStatus(err); got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
	}
}
