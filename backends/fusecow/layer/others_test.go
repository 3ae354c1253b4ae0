//go:build linux

package layer_test

import (
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const othersEnv = "SNAPFS_TEST_OTHERS"

// TestForeignDirectoriesKeepTheirPermissions: an ordinary user can enter directories without listing them, and
// list directories without entering them, as the permissions say.
func TestForeignDirectoriesKeepTheirPermissions(t *testing.T) {
	if lower := os.Getenv(othersEnv); lower != "" {
		passesAndLists(t, lower)
		return
	}
	treetest.NeedRoot(t)
	user := treetest.User(t)
	lower := treetest.Dir(t)
	for dir, mode := range map[string]os.FileMode{"": 0o755, "/enter": 0o711, "/list": 0o744} {
		if err := os.MkdirAll(lower+dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(lower+dir+"/file", []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(lower+dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(othersEnv+"="+lower))
}

func passesAndLists(t *testing.T, lower string) {
	for _, layers := range [][]string{nil, {t.TempDir() + "/layer"}} {
		f, err := layer.Open(layer.Options{Lower: lower, Layers: layers, ReadOnly: layers == nil})
		if err != nil {
			t.Fatal(err)
		}
		enter, err := f.Lookup(layer.RootID, "enter")
		if err != nil {
			t.Fatal(err)
		}
		file, err := f.Lookup(enter.ID, "file")
		buf := make([]byte, 10)
		if err == nil {
			var n int
			n, err = f.Read(file.ID, buf, 0)
			buf = buf[:n]
		}
		if err != nil || string(buf) != "text" {
			t.Errorf("with %d layers, a file beyond what cannot be listed holds %q, %v", len(layers), buf, err)
		}
		list, err := f.Lookup(layer.RootID, "list")
		if err != nil {
			t.Fatal(err)
		}
		names := 0
		err = f.ReadDir(f.OpenDir(list.ID), list.ID, 0, func(_ layer.Dir, e vfs.Entry, _ uint64) (bool, error) {
			if e.Name == "file" {
				names++
			}
			return true, nil
		})
		if err != nil || names != 1 {
			t.Errorf("with %d layers, what cannot be entered lists its file %d times, %v", len(layers), names, err)
		}
		if _, err := f.Lookup(list.ID, "file"); !errors.Is(err, unix.EACCES) {
			t.Errorf("with %d layers, what cannot be entered is: %v", len(layers), err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
