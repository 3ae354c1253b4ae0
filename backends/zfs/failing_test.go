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

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// ofFiles makes a pool of two disks that are files, which goes with the test, and a
// place on it. What is left in the pool then is an error.
func ofFiles(t *testing.T, kind string) (pool string, disks []string, p snapshot.Place) {
	t.Helper()
	dir := treetest.Dir(t)
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

// TestAMirrorThatLosesADiskGoesOn, with what was made before and what is made then.
func TestAMirrorThatLosesADiskGoesOn(t *testing.T) {
	pool, disks, p := ofFiles(t, "mirror")
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	s, f := grown(t, b, p)
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork"), 0o600))
	must(t, os.Truncate(disks[0], 0))
	zpool(t, "offline", "-f", pool, disks[0])
	if said := zpool(t, "status", pool); !strings.Contains(said, "DEGRADED") {
		t.Fatalf("the pool is said to be well:\n%s", said)
	}
	s2, f2, err := b.Clone(t.Context(), p.Tree, "s2", "f2")
	must(t, err)
	_, err = b.Seal(t.Context(), "f1", "s3", snapshot.InUse)
	must(t, err)
	reads(t, p.Tree.Path+"/file", "real")
	reads(t, s.View.Path+"/file", "real")
	reads(t, f.View.Path+"/file", "fork")
	reads(t, s2.View.Path+"/file", "real")
	reads(t, f2.View.Path+"/file", "real")
	must(t, b.RemoveFork(t.Context(), "f2"))
	must(t, b.Remove(t.Context(), "s2"))
	must(t, b.Remove(t.Context(), "s3"))
	gone(t, b)
	reads(t, p.Tree.Path+"/file", "real")
}

// TestAFullPoolIsSaidToBeFullAndGivesBackWhatIsRemoved: full by what a fork wrote.
func TestAFullPoolIsSaidToBeFullAndGivesBackWhatIsRemoved(t *testing.T) {
	_, _, p := ofFiles(t, "")
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	_, f := grown(t, b, p)
	fill(t, f.View.Path+"/ballast")
	refused := 0
	for i := range 3 {
		id := fmt.Sprintf("n%d", i)
		_, _, err := b.Clone(t.Context(), p.Tree, snapshot.ID(id), snapshot.ForkID(id))
		var e *snapshot.Error
		switch {
		case err == nil:
		case !errors.Is(err, snapshot.ErrNoSpace) || !errors.As(err, &e) || len(e.Hints) == 0:
			t.Errorf("a clone on a full pool gives %v", err)
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

// fill writes to a file until there is no room.
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
