//go:build linux

package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// A read-only file is read-only under its other names in the workspace, up to a bound that is an error. A name below
// a read-only path, and a file with one name, need nothing.
func TestOtherNamesAreFoundAndBounded(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errors.Join(os.MkdirAll(at("w/kept"), 0o755), os.MkdirAll(at("w/sub/dir"), 0o755)))
	must(errors.Join(os.WriteFile(at("w/kept/f"), nil, 0o644), os.WriteFile(at("w/alone"), nil, 0o644)))
	rec := &catalog.Record{Workspace: at("w")}
	names := func() ([]string, error) {
		t.Helper()
		s := isolate.Spec{ReadOnly: []string{at("w/kept"), at("w/alone"), at("w/absent")}}
		notes, err := addOtherNames(t.Context(), &s, rec, newLookupCache(), func(path string) string { return path })
		if len(notes) > 0 || len(s.Hide) > 0 {
			t.Errorf("notes %q, hidden %q", notes, s.Hide)
		}
		return s.ReadOnly[3:], err
	}
	if list, err := names(); err != nil || len(list) > 0 {
		t.Errorf("without links: %q, %v", list, err)
	}
	must(errors.Join(os.Link(at("w/kept/f"), at("w/kept/g")), os.Link(at("w/kept/f"), at("outside"))))
	if list, err := names(); err != nil || len(list) > 0 {
		t.Errorf("with links below the path and outside of the workspace: %q, %v", list, err)
	}
	must(os.Link(at("w/kept/f"), at("w/sub/dir/h")))
	if list, err := names(); err != nil || !slices.Equal(list, []string{at("w/sub/dir/h")}) {
		t.Errorf("with a link in the workspace: %q, %v", list, err)
	}
	for i := range maxOtherNames {
		must(os.Link(at("w/kept/f"), at("w/sub/"+strconv.Itoa(i))))
	}
	if _, err := names(); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("with too many links: %v", err)
	}
}
