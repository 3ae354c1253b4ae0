package catalog_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// filesOf lists the paths below a directory, with a slash after those of directories.
func filesOf(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if rel, err := filepath.Rel(dir, path); err != nil {
			return err
		} else if e.IsDir() {
			list = append(list, rel+"/")
		} else {
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What a removed sandbox leaves for the next one is what the next one would make, and nothing that a sandbox says of
// itself.
func TestTheDirectoryOfARemovedSandboxIsReusedWithoutItsFiles(t *testing.T) {
	usual := map[string]string{"keeper.log": "", "stops": "\x00", "bases/0/window": "of before", "tmp/x/": ""}
	fresh := []string{"record.copy", "record.json"}
	reused := slices.Concat([]string{"bases/", "bases/0/", "bases/0/window.new", "keeper.log"}, fresh, []string{"record.json.new"})
	for name, c := range map[string]struct {
		more map[string]string // path to content
		want []string
	}{
		"usual":                 {nil, reused},
		"with a mark":           {map[string]string{"agent.json": "{}"}, fresh},
		"with an empty file":    {map[string]string{"mark": ""}, fresh},
		"with a message":        {map[string]string{"keeper.log": "it has crashed"}, fresh},
		"with files in tmp":     {map[string]string{"tmp/y": "x"}, reused},
		"without a command":     {map[string]string{"bases/0/window.new": "of before that"}, reused},
		"with a baseline":       {map[string]string{"bases/0/kept": "of before"}, fresh},
		"with a second base":    {map[string]string{"bases/1/window": "of before"}, fresh},
		"with a directory more": {map[string]string{"logs/": ""}, fresh},
	} {
		t.Run(name, func(t *testing.T) {
			cat := open(t)
			if err := cat.Create(newRecord("old")); err != nil {
				t.Fatal(err)
			}
			for _, files := range []map[string]string{usual, c.more} {
				for path, content := range files {
					full := filepath.Join(cat.Path("old"), path)
					dir := full
					if path[len(path)-1] != '/' {
						dir = filepath.Dir(full)
					}
					if err := os.MkdirAll(dir, 0o700); err != nil {
						t.Fatal(err)
					}
					if dir != full {
						if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			h, err := cat.TryLock("old")
			if err != nil {
				t.Fatal(err)
			}
			d, err := h.Discard()
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Forget(); err != nil {
				t.Fatal(err)
			}
			d.Release()
			if left := filesOf(t, filepath.Join(cat.Dir(), "trash")); len(left) > 0 {
				t.Errorf("left in the trash: %q", left)
			}
			run, next := newRecord("run"), newRecord("next")
			run.Ephemeral = true
			if err := errors.Join(cat.Create(run), cat.Create(next)); err != nil {
				t.Fatal(err)
			}
			if got := filesOf(t, cat.Path("run")); !slices.Equal(got, []string{"record.json"}) {
				t.Errorf("an ephemeral sandbox has %q", got)
			}
			if got := filesOf(t, cat.Path("next")); !slices.Equal(got, c.want) {
				t.Errorf("the next sandbox has %q, want %q", got, c.want)
			}
			if r, err := cat.Get("next"); err != nil || r.ID != next.ID {
				t.Errorf("its record is %+v, %v", r, err)
			}
		})
	}
}
