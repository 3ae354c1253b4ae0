package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// newRoot returns a Root of a new directory, beside a directory "out" with a file "secret", which no path may reach.
func newRoot(t *testing.T) (r *Root, dir, outside string) {
	t.Helper()
	top := t.TempDir()
	dir, outside = filepath.Join(top, "root"), filepath.Join(top, "out")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(outside, "secret"), "secret")
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, dir, outside
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, tree Tree, path string) string {
	t.Helper()
	f, _, err := tree.Read(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAFileIsWrittenReplacedAndRead(t *testing.T) {
	r, dir, _ := newRoot(t)
	checkOperations(t, r, dir)
}

// checkOperations does every operation once, on the empty Tree of the directory dir.
func checkOperations(t *testing.T, tree Tree, dir string) {
	t.Helper()
	i, err := tree.Write("/a/b/c.txt", strings.NewReader("one"), WriteOptions{Parents: true, Mode: 0o600})
	if err != nil || i.Name != "c.txt" || i.Size != 3 || i.Mode != "0600" || i.Type != File {
		t.Fatalf("%+v, %v", i, err)
	}
	if err := os.Symlink("b/c.txt", filepath.Join(dir, "a/link")); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write("a/link", strings.NewReader("two, longer"), WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, tree, "/a/b/../b/c.txt"); got != "two, longer" {
		t.Errorf("got %q", got)
	}
	if i, err := tree.Stat("a/link", false); err != nil || i.Type != Symlink || i.Target != "b/c.txt" {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := tree.Stat("a/link", true); err != nil || i.Type != File || i.Mode != "0600" {
		t.Errorf("%+v, %v", i, err)
	}
	f, i, err := tree.Read("a/link", 5)
	if err != nil || i.Size != 11 {
		t.Fatalf("%+v, %v", i, err)
	}
	if data, err := io.ReadAll(f); err != nil || string(data) != "longer" {
		t.Errorf("%q, %v", data, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tree.MakeDir("d/\xff/f", true); err != nil {
		t.Error(err)
	}
	if _, err := tree.MakeDir("d", false); !errors.Is(err, errs.ErrExists) {
		t.Error(err)
	}
	list, more, err := tree.List("d", ListOptions{})
	if err != nil || more || len(list) != 1 || list[0].Name != "\xff" {
		t.Errorf("%+v, %v, %v", list, more, err)
	}
	list, more, err = tree.List("/", ListOptions{Limit: 1})
	if err != nil || !more || len(list) != 1 || list[0].Name != "a" {
		t.Errorf("%+v, %v, %v", list, more, err)
	}
	list, more, err = tree.List("/", ListOptions{Limit: 1, After: "a"})
	if err != nil || more || len(list) != 1 || list[0].Name != "d" {
		t.Errorf("%+v, %v, %v", list, more, err)
	}
	if err := tree.Rename("a/b/c.txt", "d/e"); err != nil {
		t.Error(err)
	}
	if err := tree.Remove("d", false); !errors.Is(err, errs.ErrExists) {
		t.Error(err)
	}
	for path, all := range map[string]bool{"d": true, "a/link": false, "a/b": false, "a": false} {
		if path == "a" {
			continue // after what is in it
		}
		if err := tree.Remove(path, all); err != nil {
			t.Error(err)
		}
	}
	if err := tree.Remove("a", false); err != nil {
		t.Error(err)
	}
	if _, err := tree.Stat("a", false); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
}

func TestNoPathLeadsOutOfTheRoot(t *testing.T) {
	r, dir, outside := newRoot(t)
	for name, to := range map[string]string{"abs": outside, "up": "../out", "file": "../out/secret", "proc": "/proc/self/root" + outside, "new": "../out/new"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		"../out/secret", "/../out/secret", "a/../../out/secret", "abs/secret", "up/secret", "file", "proc/secret", outside + "/secret", "/proc/self/cwd",
	} {
		if f, _, err := r.Read(path, 0); err == nil {
			data, _ := io.ReadAll(f)
			t.Errorf("%s: read %q, %v", path, data, f.Close())
		}
		if _, err := r.Stat(path, true); err == nil {
			t.Errorf("%s: described", path)
		}
	}
	for _, path := range []string{"up/new", "new", "../out/new", "abs/new"} {
		_, _ = r.Write(path, strings.NewReader("x"), WriteOptions{Parents: true}) // inside the root it may succeed
		_ = r.Rename("file", path)
		_ = r.Remove("up/secret", true)
		_, _ = r.MakeDir(path+"/x", true)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 || entries[0].Name() != "secret" {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(data) != "secret" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestMagicLinksAreNotFollowed: below a root that contains /proc, its links lead out of every root.
func TestMagicLinksAreNotFollowed(t *testing.T) {
	r, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, path := range []string{"/proc/self/root/etc/passwd", "/proc/self/exe", "/proc/self/cwd"} {
		if f, _, err := r.Read(path, 0); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v, %v", path, f, err)
		}
	}
}

func TestNeitherAPipeNorADeviceIsOpened(t *testing.T) {
	r, dir, _ := newRoot(t)
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() {
		_, _, err := r.Read("pipe", 0)
		done <- err
		_, err = r.Write("pipe", strings.NewReader("x"), WriteOptions{})
		done <- err
	}()
	for range 2 {
		select {
		case err := <-done:
			if !errors.Is(err, errs.ErrInvalid) {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it blocks")
		}
	}
	dev, err := Open("/dev")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, _, err := dev.Read("null", 0); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the client has gone") }

func TestAnInterruptedWriteLeavesTheOldFile(t *testing.T) {
	r, dir, _ := newRoot(t)
	write(t, filepath.Join(dir, "a"), "old")
	if _, err := r.Write("a", io.MultiReader(strings.NewReader("new"), broken{}), WriteOptions{}); err == nil {
		t.Error("no error")
	}
	if _, err := r.Write("a", strings.NewReader("new"), WriteOptions{New: true}); !errors.Is(err, errs.ErrExists) {
		t.Error(err)
	}
	if got := read(t, r, "a"); got != "old" {
		t.Errorf("got %q", got)
	}
	if list, _, err := r.List(".", ListOptions{}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestPathsThatNoFileCanHaveAreInvalid(t *testing.T) {
	r, dir, _ := newRoot(t)
	write(t, filepath.Join(dir, "a"), "")
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "a\x00b", strings.Repeat("x", 10<<20), strings.Repeat("x", 300), "a/b", "loop", "..", "."} {
		name := path[:min(len(path), 20)]
		if _, err := r.Write(path, strings.NewReader(""), WriteOptions{}); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("writing %q: %v", name, err)
		}
		if _, _, err := r.Read(path, 0); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("reading %q: %v", name, err)
		}
		if err := r.Remove(path, true); !errors.Is(err, errs.ErrInvalid) && path != "loop" {
			t.Errorf("removing %q: %v", name, err)
		}
	}
}
