//go:build linux

package pool_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// The host is a tmpfs, whose size can be changed at any moment.
func TestAPoolLeavesTheHostsReserveFree(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "btrfs")
	treetest.NeedProgram(t, "mkfs.btrfs")
	top := treetest.Dir(t)
	host, work := filepath.Join(top, "host"), filepath.Join(top, "work")
	must(t, errors.Join(os.Mkdir(host, 0o700), os.Mkdir(work, 0o755), os.WriteFile(work+"/file", []byte("base"), 0o600)))
	must(t, unix.Mount("snapfs-test", host, "tmpfs", 0, "size=4g"))
	t.Cleanup(func() { treetest.UnmountSoon(t, host) })
	beyond := func(n int64) { // n bytes more than the reserve are free
		t.Helper()
		fs, err := mount.FilesystemOf(host)
		must(t, err)
		must(t, unix.Mount("", host, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", fs.Size-fs.Avail+1<<30+n)))
	}

	p, err := pool.Create(t.Context(), host, "p", 512<<20)
	must(t, err)
	t.Cleanup(func() { treetest.UnmountSoon(t, p.Mount()) })
	_, err = p.Import(t.Context(), work, nil)
	must(t, err)
	place := snapshot.Place{Tree: snapshot.Tree{Path: work}, Dir: host}
	opened, err := pool.Driver.Open(t.Context(), place)
	must(t, err)
	b, ok := opened.(interface {
		snapshot.Backend
		snapshot.Cloner
		snapshot.Maintainer
	})
	if !ok {
		t.Fatal("the backend lacks an optional power")
	}
	_, f, err := b.Clone(t.Context(), place.Tree, "s1", "f1")
	must(t, err)

	const room, more = 8 << 20, 24 << 20
	beyond(room)
	must(t, b.Maintain(t.Context()))
	large := f.View.Path + "/large"
	err = os.WriteFile(large, make([]byte, more), 0o600)
	if st, serr := os.Stat(large); !errors.Is(err, unix.EDQUOT) || serr != nil || st.Size() > room {
		t.Errorf("with %d bytes beyond the reserve: %v, %v", room, err, serr)
	}
	must(t, os.Remove(large))
	beyond(1 << 30)
	must(t, b.Maintain(t.Context()))
	must(t, os.WriteFile(large, make([]byte, more), 0o600))

	beyond(-4096)
	_, fork := b.Fork(t.Context(), "s1", "f2")
	_, _, clone := b.Clone(t.Context(), place.Tree, "s2", "f2")
	_, again := p.Import(t.Context(), work, nil)
	for what, err := range map[string]error{"fork": fork, "clone": clone, "import": again} {
		var e *errs.Error
		if !errors.Is(err, errs.ErrNoSpace) || !errors.As(err, &e) || len(e.Hints) == 0 {
			t.Errorf("%s below the reserve: %v", what, err)
		}
	}
	if s, err := p.Status(); err != nil || s.Reserve != 1<<30 || s.HostFree >= s.Reserve {
		t.Errorf("the status is %+v, %v", s, err)
	}
	must(t, os.Remove(large))
	beyond(1 << 30)
	_, err = b.Fork(t.Context(), "s1", "f2")
	must(t, err)
}
