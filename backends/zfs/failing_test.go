//go:build vm

package zfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// ofFiles makes a pool of two disks that are files, which is destroyed with the test, and returns a
// place on it. Remaining datasets are an error.
func ofFiles(t *testing.T, kind string) (pool string, disks []string, p snapshot.Place) {
	t.Helper()
	return ofFilesIn(t, treetest.Dir(t), kind)
}

func ofFilesIn(t *testing.T, dir, kind string) (pool string, disks []string, p snapshot.Place) {
	t.Helper()
	pool = "of-" + filepath.Base(dir)
	args := []string{"create", "-f", "-m", dir + "/fs", "-O", "acltype=posixacl", "-O", "xattr=sa", pool}
	if kind != "" {
		args = append(args, kind)
	}
	for _, disk := range []string{dir + "/disk0", dir + "/disk1"} {
		must(t, os.WriteFile(disk, nil, 0o600))
		must(t, os.Truncate(disk, 128<<20))
		disks = append(disks, disk)
	}
	zpool(t, append(args, disks...)...)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		list, err := run.Output(ctx, "zfs", "list", "-H", "-r", "-t", "all", "-o", "name", pool)
		if got := strings.Fields(string(list)); len(got) > 2 || err != nil {
			t.Errorf("left behind: %q, %v", got, err)
		}
		if _, err := run.Output(ctx, "zpool", "destroy", "-f", pool); err != nil {
			t.Error(err)
		}
	})
	return pool, disks, snapshot.Place{Tree: snapshot.Tree{Path: dir + "/fs"}, Dir: dir + "/state"}
}

func zpool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run.Output(t.Context(), "zpool", args...)
	must(t, err)
	return string(out)
}

func reads(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); string(text) != want {
		t.Errorf("%s holds %q, %v", path, text, err)
	}
}

// Both the data from before the failure and new data must be readable.
func TestAMirrorWithoutADiskKeepsWorking(t *testing.T) {
	pool, disks, p := ofFiles(t, "mirror")
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	s, f := grown(t, b, p)
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork"), 0o600))
	must(t, os.Truncate(disks[0], 0))
	zpool(t, "offline", "-f", pool, disks[0])
	if said := zpool(t, "status", pool); !strings.Contains(said, "DEGRADED") {
		t.Fatalf("the pool's status is:\n%s", said)
	}
	s2, f2, err := b.Clone(t.Context(), p.Tree, "s2", "f2")
	must(t, err)
	_, err = b.Seal(t.Context(), "f1", "s3", snapshot.InUse)
	must(t, err)
	reads(t, p.Tree.Path+"/file", "real")
	reads(t, s.View.Path+"/file", "real")
	reads(t, f.View.Path+"/file", "fork")
	s2, err = b.Lookup(t.Context(), s2.ID)
	must(t, err)
	reads(t, s2.View.Path+"/file", "real")
	reads(t, f2.View.Path+"/file", "real")
	must(t, b.RemoveFork(t.Context(), "f2"))
	must(t, b.Remove(t.Context(), "s2"))
	must(t, b.Remove(t.Context(), "s3"))
	gone(t, b)
	reads(t, p.Tree.Path+"/file", "real")
}

// Every verb must report a suspended pool at once, and work again when the pool resumes. A pool is
// suspended when it has no writable disk: here, because the filesystem of its disks is full.
func TestASuspendedPoolIsReportedAtOnce(t *testing.T) {
	ground := treetest.Tmpfs(t, "160m")
	pool, _, p := ofFilesIn(t, ground, "")
	p.Dir = treetest.Dir(t) + "/state"
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	_, f := grown(t, b, p)
	must(t, b.Remove(t.Context(), "s1")) // an entry for Sweep
	_, err := b.Seal(t.Context(), "f1", "s2", snapshot.InUse)
	must(t, err)

	fillUp(t, ground+"/ballast")
	written := make(chan error, 1)
	go func() { // blocks as long as the pool is suspended
		file, err := os.Create(p.Tree.Path + "/waits")
		if err == nil {
			_, err = file.Write(make([]byte, 8<<20))
			err = errors.Join(err, file.Sync(), file.Close())
		}
		written <- err
	}()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		state, err := os.ReadFile("/proc/spl/kstat/zfs/" + pool + "/state")
		must(t, err)
		if strings.TrimSpace(string(state)) == "SUSPENDED" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the pool is not suspended: %s", state)
		}
	}
	for verb, do := range map[string]func() error{
		"capture": func() error { _, err := b.Capture(t.Context(), p.Tree, "n1"); return err },
		"clone":   func() error { _, _, err := b.Clone(t.Context(), p.Tree, "n2", "n2"); return err },
		"fork":    func() error { _, err := b.Fork(t.Context(), "s2", "n3"); return err },
		"seal":    func() error { _, err := b.Seal(t.Context(), "f1", "n4", snapshot.InUse); return err },
		"look up": func() error { _, err := b.LookupFork(t.Context(), "f1"); return err },
		"remove":  func() error { return b.RemoveFork(t.Context(), "f1") },
		"sweep":   func() error { return b.Sweep(t.Context()) },
	} {
		said := make(chan error, 1)
		go func() { said <- do() }()
		select {
		case err := <-said:
			var e *errs.Error
			if !errors.Is(err, errs.ErrCorrupt) || !errors.As(err, &e) || !strings.Contains(strings.Join(e.Hints, "\n"), "zpool clear "+pool) {
				t.Errorf("%s returns %v", verb, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s blocks", verb)
		}
	}
	must(t, os.Remove(ground+"/ballast"))
	zpool(t, "clear", pool)
	must(t, <-written)
	reads(t, p.Tree.Path+"/file", "real")
	reads(t, f.View.Path+"/file", "real")
	_, _, err = b.Clone(t.Context(), p.Tree, "after", "after")
	must(t, err)
	for _, id := range []string{"f1", "after"} {
		must(t, b.RemoveFork(t.Context(), snapshot.ForkID(id)))
	}
	for _, id := range []snapshot.ID{"s2", "after"} {
		must(t, b.Remove(t.Context(), id))
	}
	must(t, b.Sweep(t.Context()))
}

// fillUp writes to a file until its filesystem is full.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); errors.Is(err, unix.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else {
			must(t, err)
		}
	}
}

// The pool is full because of a fork's data.
func TestAFullPoolIsReportedAndFreesRemovedForks(t *testing.T) {
	_, _, p := ofFiles(t, "")
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	_, f := grown(t, b, p)
	fill(t, f.View.Path+"/ballast")
	refused := 0
	for i := range 3 {
		id := fmt.Sprintf("n%d", i)
		_, _, err := b.Clone(t.Context(), p.Tree, snapshot.ID(id), snapshot.ForkID(id))
		var e *errs.Error
		switch {
		case err == nil:
		case !errors.Is(err, errs.ErrNoSpace) || !errors.As(err, &e) || len(e.Hints) == 0:
			t.Errorf("a clone on a full pool returns %v", err)
		default:
			refused++
		}
		must(t, b.RemoveFork(t.Context(), snapshot.ForkID(id)))
		must(t, b.Remove(t.Context(), snapshot.ID(id)))
	}
	t.Logf("of 3 clones on a full pool %d are refused", refused)
	reads(t, p.Tree.Path+"/file", "real")
	gone(t, b)
	must(t, os.WriteFile(p.Tree.Path+"/more", make([]byte, 8<<20), 0o600))
}

// fill writes to a file until there is no space.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i * i >> 3)
	}
	for n := 0; n < 1024; n++ {
		if _, err = f.Write(chunk); err == nil {
			err = f.Sync()
		}
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		must(t, err)
	}
	t.Fatal("the pool cannot be filled")
}
