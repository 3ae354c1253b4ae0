package sendstream

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// When a directory is renamed, a place in it moves along, unless the stream does not have it there.
func TestAnUnknownPlaceIsRemovedAfterItsDirectoryMoved(t *testing.T) {
	given := vfs.Timestamp{Sec: 1000, Nsec: 1}
	for name, c := range map[string]struct {
		do   words
		want []string
	}{
		"moved": {func(s *Writer) { s.Rename("d", "o"); s.Times("o", &vfs.Stat{MTime: given}) }, []string{".", "o", "o/known", "o/x"}},
		"moved twice": {func(s *Writer) {
			s.Rename("d", "o")
			s.Make("p", statOf(unix.S_IFDIR), "")
			s.Own("p", statOf(0o700))
			s.Rename("o", "p/o")
			s.Times("p/o", &vfs.Stat{MTime: given})
		}, []string{".", "p", "p/o", "p/o/known", "p/o/x"}},
		"removed": {func(s *Writer) {
			s.Rename("d", "o")
			s.Remove("o/known", true)
			s.Remove("o/x", false)
			s.Remove("o", true)
		}, []string{"."}},
		"with what is written into it": {func(s *Writer) {
			s.Rename("d", "o")
			s.Make("o/mine/x", statOf(unix.S_IFREG), "")
			s.Times("o", &vfs.Stat{MTime: given})
		}, []string{".", "o", "o/known", "o/mine", "o/mine/x", "o/x"}},
		"left": {func(s *Writer) { s.Make("new", statOf(unix.S_IFREG), "") }, []string{".", "d", "d/known", "d/mine", "d/x", "new"}},
	} {
		dir := t.TempDir()
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "d/known"), 0o700), os.Mkdir(filepath.Join(dir, "d/mine"), 0o700),
			os.WriteFile(filepath.Join(dir, "d/x"), nil, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		s := NewWriter(&b, true)
		c.do(s)
		var stays []string
		how := Options{
			OnBase: true, Places: []string{"d", "d/known", "d/mine"}, Unknown: []string{"d/mine"},
			Stays: func(path string) { stays = append(stays, path) },
		}
		if err := errors.Join(s.End(), Apply(t.Context(), treetest.Open(t, dir), &b, how)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		err = fs.WalkDir(os.DirFS(dir), ".", func(at string, d fs.DirEntry, err error) error {
			got = append(got, at)
			if info, _ := d.Info(); filepath.Base(at) == "o" && !info.ModTime().Equal(time.Unix(1000, 1)) {
				t.Errorf("%s: the mtime of %s is %v", name, at, info.ModTime())
			}
			return err
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: the tree has %q, %v: want %q", name, got, err, c.want)
		}
		if want := name == "left"; slices.Equal(stays, how.Unknown) != want || !want && len(stays) > 0 {
			t.Errorf("%s: %q stay", name, stays)
		}
	}
}
