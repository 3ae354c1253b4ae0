package token

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
)

func TestATokenIsValidUntilItsEndOrRemoval(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := Open(dir)
	if _, err := s.Check("snapfs_x"); !errors.Is(err, errs.ErrDenied) {
		t.Error("without a file:", err)
	}
	text, err := s.New(Token{Name: "ci", Scopes: []Scope{Read}, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.New(Token{Name: "old", Scopes: []Scope{Read}, Expires: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Check(text); err != nil || got.Name != "ci" || len(got.Scopes) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", text[:len(text)-1], text + "A", strings.TrimPrefix(text, prefix), old, prefix, strings.Repeat("x", 1<<20), prefix + strings.Repeat("A", 1<<20)} {
		if _, err := s.Check(bad); !errors.Is(err, errs.ErrDenied) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
	if _, err := s.New(Token{Name: "ci", Scopes: []Scope{Run}}); !errors.Is(err, errs.ErrExists) {
		t.Error(err)
	}
	for _, bad := range []Token{{Name: "../x", Scopes: Scopes()}, {Name: "", Scopes: Scopes()}, {Name: "none"}} {
		if _, err := s.New(bad); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 2 || list[0].Name != "ci" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Remove("ci"); err != nil {
		t.Error(err)
	}
	if _, err := s.Check(text); !errors.Is(err, errs.ErrDenied) {
		t.Error("after its removal:", err)
	}
	if err := s.Remove("ci"); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
}

func TestTheFileHasNoTokenAndIsPrivate(t *testing.T) {
	dir := t.TempDir()
	s := Open(dir)
	text, err := s.New(Token{Name: "ci", Scopes: Scopes()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(data), strings.TrimPrefix(text, prefix)) || strings.Contains(string(data), hex.EncodeToString([]byte(text))) {
		t.Errorf("%s, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(text); err == nil {
		t.Error("a file that others can read is used")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(text); !errors.Is(err, errs.ErrCorrupt) {
		t.Error(err)
	}
}

func TestConcurrentChangesLoseNoToken(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for _, name := range strings.Split("abcdefghijkl", "") {
		all.Go(func() {
			if _, err := Open(dir).New(Token{Name: name, Scopes: Scopes()}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := Open(dir).List(); err != nil || len(list) != 12 {
		t.Errorf("%d tokens, %v", len(list), err)
	}
}
