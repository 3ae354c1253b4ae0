package stream_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
)

func label() stream.Header {
	return stream.Header{Sandbox: "fix", State: "s1", ID: "abc-s1", Base: "abc-s0", Taken: time.Unix(1, 2).UTC(), Workspace: "/w", Driver: "btrfs", Form: "f"}
}

func packed(t *testing.T, l stream.Header, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := stream.NewWriter(&b, l)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpacked(b []byte) (stream.Header, []byte, error) {
	r, l, err := stream.Open(bytes.NewReader(b))
	if err != nil {
		return l, nil, err
	}
	content, err := io.ReadAll(r)
	return l, content, err
}

func TestStreamIsReadAsWritten(t *testing.T) {
	for _, n := range []int{0, 1, 256 << 10, 700_000} {
		content := bytes.Repeat([]byte("x1"), n)[:n]
		l, got, err := unpacked(packed(t, label(), content))
		if err != nil || l != label() || !bytes.Equal(got, content) {
			t.Errorf("%d bytes: %v, %+v, %d bytes", n, err, l, len(got))
		}
	}
}

// A program that does not know budgets refuses a stream with one by its first line.
func TestAStreamWithABudgetIsOfAnotherVersion(t *testing.T) {
	with := label()
	with.Budget = &catalog.SentBudget{Limits: catalog.Budget{Tokens: 9, Hosts: []string{"m.example"}}, Ledger: "l", Used: map[string]map[string]int64{"l": {"tokens": 3}}}
	text := packed(t, with, []byte("x"))
	l, got, err := unpacked(text)
	if err != nil || string(got) != "x" || !reflect.DeepEqual(l, with) {
		t.Errorf("%v, %+v, %q", err, l, got)
	}
	if !bytes.HasPrefix(text, []byte("snapfs parcel 2\n")) || !bytes.HasPrefix(packed(t, label(), nil), []byte("snapfs parcel 1\n")) {
		t.Errorf("%.20q", text)
	}
}

func TestDamagedOrCutStreamIsRejected(t *testing.T) {
	good := packed(t, label(), []byte("some content"))
	for at := range good {
		if _, _, err := unpacked(good[:at]); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("cut off at %d: %v", at, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[at] ^= 1 << bit
			if _, _, err := unpacked(bad); !errors.Is(err, errs.ErrCorrupt) {
				t.Errorf("with bit %d of byte %d changed: %v", bit, at, err)
			}
		}
	}
}

// Names from another machine become names on this one.
func TestHeaderNamesAreValidated(t *testing.T) {
	for name, spoil := range map[string]func(*stream.Header){
		"a sandbox that is a path": func(l *stream.Header) { l.Sandbox = "../x" },
		"a state that is a path":   func(l *stream.Header) { l.State = "a/b" },
		"no state":                 func(l *stream.Header) { l.State = "" },
		"no id":                    func(l *stream.Header) { l.ID = "" },
		"an id with a line break":  func(l *stream.Header) { l.ID = "a\nb" },
		"a base that is no id":     func(l *stream.Header) { l.Base = strings.Repeat("a", 65) },
		"a workspace nowhere":      func(l *stream.Header) { l.Workspace = "w" },
		"a workspace with ..":      func(l *stream.Header) { l.Workspace = "/w/../etc" },
	} {
		l := label()
		spoil(&l)
		if _, _, err := unpacked(packed(t, l, nil)); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
