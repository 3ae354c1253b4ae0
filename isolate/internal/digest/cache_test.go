//go:build linux

package digest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// cached is a root directory with a program, and a cache with what Verify has stored there.
type cached struct {
	root    *os.File
	program string
	cache   Cache
}

func newCached(t *testing.T) *cached {
	t.Helper()
	dir := treetest.Dir(t)
	c := &cached{program: filepath.Join(dir, "root", "tool"), cache: Cache(filepath.Join(dir, "digests"))}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "root"), 0o755), os.WriteFile(c.program, []byte("content"), 0o755)); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.root, err = os.Open(filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.root.Close() })
	return c
}

func (c *cached) stat(t *testing.T) *vfs.Stat {
	t.Helper()
	st, err := vfs.Lstat(unix.AT_FDCWD, c.program)
	if err != nil {
		t.Fatal(err)
	}
	return &st
}

// fake has the cache say that the program has the digest of zeros, as it is now. By that a test sees what Verify read.
func (c *cached) fake(t *testing.T) string {
	t.Helper()
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	real, err := filepath.EvalSymlinks(c.program)
	if err == nil {
		err = errors.Join(os.MkdirAll(string(c.cache), 0o700), os.Symlink(zeros, c.cache.entry(real, c.stat(t))))
	}
	if err != nil {
		t.Fatal(err)
	}
	return zeros
}

func (c *cached) verify(digest string) error {
	return Verify(int(c.root.Fd()), []Program{{"/tool", digest}}, c.cache)
}

// TestADigestIsStoredForTheVersionThatWasRead: a program that has not changed is not read again, and one is read that was
// written to, replaced, or only touched, or whose cache others may write.
func TestADigestIsStoredForTheVersionThatWasRead(t *testing.T) {
	for name, change := range map[string]func(c *cached) error{
		"written": func(c *cached) error { return os.WriteFile(c.program, []byte("another"), 0o755) },
		"written with the old time": func(c *cached) error {
			info, err := os.Stat(c.program)
			return errors.Join(err, os.WriteFile(c.program, []byte("another"), 0o755), os.Chtimes(c.program, info.ModTime(), info.ModTime()))
		},
		"replaced": func(c *cached) error {
			return errors.Join(os.WriteFile(c.program+"2", []byte("content"), 0o755), os.Rename(c.program+"2", c.program))
		},
		"touched":  func(c *cached) error { return os.Chmod(c.program, 0o700) },
		"anybodys": func(c *cached) error { return os.Chmod(string(c.cache), 0o777) },
	} {
		c := newCached(t)
		zeros := c.fake(t)
		if err := c.verify(zeros); err != nil {
			t.Fatalf("%s: the stored digest is not used: %v", name, err)
		}
		if err := change(c); err != nil {
			t.Fatal(err)
		}
		if err := c.verify(zeros); !errors.Is(err, ErrContent) {
			t.Errorf("%s: the digest of an earlier version is used: %v", name, err)
		}
	}
}

// TestADigestIsStoredOnceTheProgramHasSettled, and never for a program that changed while or just before it was read.
func TestADigestIsStoredOnceTheProgramHasSettled(t *testing.T) {
	c := newCached(t)
	const digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73" // of "content"
	stored := func() int {
		all, _ := os.ReadDir(string(c.cache)) // none: there is no directory yet
		return len(all)
	}
	st := c.stat(t)
	later := st.CTime.Time().Add(time.Minute)
	changed := *st
	changed.CTime.Nsec ^= 1
	c.cache.put(c.program, digest, st.CTime.Time(), st, st)
	c.cache.put(c.program, digest, later, st, &changed)
	if stored() != 0 {
		t.Error("the digest of a program that changed just before it was read, or meanwhile, is stored")
	}
	c.cache.put(c.program, digest, later, st, st)
	if stored() != 1 || c.cache.get(c.program, st) != digest || c.cache.get(c.program, &changed) != "" || c.cache.get("/other", st) != "" {
		t.Errorf("%d digests are stored", stored())
	}
	for i := range maxDigests + 3 {
		st.Size = int64(i)
		c.cache.put(c.program, digest, later, st, st)
	}
	if n := stored(); n == 0 || n > maxDigests {
		t.Errorf("%d digests are stored", n)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until the program has settled
		if err := c.verify(digest); err != nil {
			t.Fatal(err)
		}
		real, err := filepath.EvalSymlinks(c.program)
		if err != nil {
			t.Fatal(err)
		}
		if c.cache.get(real, c.stat(t)) == digest {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("Verify stores no digest")
		}
	}
}
