//go:build linux

package overlayquota_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/backends/overlayquota"
	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// pools are in memory, where a commit waits for no disk. The first is created on demand and shared
// by many state directories.
type pools struct {
	t     testing.TB
	dir   string
	first *pool.Pool
}

// another creates a pool in a directory of its own.
func (m *pools) another(t testing.TB) *pool.Pool {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "btrfs")
	treetest.NeedProgram(t, "mkfs.btrfs")
	if m.dir == "" {
		m.dir = treetest.Dir(m.t)
		must(t, unix.Mount("snapfs-test", m.dir, "tmpfs", 0, "size=4g"))
		m.t.Cleanup(func() { treetest.UnmountSoon(m.t, m.dir) })
	}
	dir, err := os.MkdirTemp(m.dir, "")
	must(t, err)
	p, err := pool.Create(t.Context(), dir, "p", 2<<30)
	must(t, err)
	t.Cleanup(func() { treetest.UnmountSoon(t, p.Mount()) })
	return p
}

// on returns a place with the layers on p and an empty tree.
func on(t testing.TB, p *pool.Pool, tree string) snapshot.Place {
	t.Helper()
	top := treetest.Dir(t)
	must(t, os.Symlink(filepath.Dir(p.Dir), filepath.Join(top, "pool")))
	if tree == "" {
		tree = filepath.Join(top, "work")
	}
	must(t, os.Mkdir(tree, 0o755))
	place := snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: filepath.Join(top, "overlay-quota")}
	t.Cleanup(func() { must(t, os.RemoveAll(overlayquota.Store(p, place.Dir))) })
	return place
}

func subject(t testing.TB) snapshottest.Subject {
	m := &pools{t: t}
	return snapshottest.Subject{
		Name:   "overlay-quota (root)",
		Driver: overlayquota.Driver,
		Place: func(t testing.TB) snapshot.Place {
			if m.first == nil {
				m.first = m.another(m.t)
			}
			return on(t, m.first, "")
		},
		// The suite fills the pool. The tree is on another filesystem, mounted there.
		Small: func(t testing.TB) snapshot.Place {
			p := m.another(t)
			treetest.Crowd(t, p.Mount())
			place := on(t, p, filepath.Join(p.Mount(), "work"))
			must(t, unix.Mount(treetest.Ext4(t, 64<<20), place.Tree.Path, "", unix.MS_BIND, ""))
			t.Cleanup(func() { must(t, unix.Unmount(place.Tree.Path, unix.MNT_DETACH)) })
			must(t, os.RemoveAll(filepath.Join(place.Tree.Path, "lost+found")))
			return place
		},
		Reach: reach,
		Data: func(place snapshot.Place) []string {
			part := filepath.Base(overlayquota.Store(&pool.Pool{}, place.Dir))
			return []string{filepath.Join(filepath.Dir(place.Dir), "pool/p/mnt/layers", part)}
		},
	}
}

// reach opens the root of a view, mounted as the product mounts it, except for the option volatile,
// after which only the engine can mount the fork again.
func reach(t testing.TB, v snapshot.View) *os.File {
	t.Helper()
	o := v.Overlay
	if o == nil {
		return treetest.Open(t, v.Path)
	}
	options := mount.Overlay{
		Lower: o.Lower, Upper: o.Upper, Work: o.Work, Nested: o.Nested, RedirectDir: true, Metacopy: o.Metacopy, NoIndex: true,
	}
	mnt, err := mount.NewOverlay(options)
	if errors.Is(err, mount.ErrEndedReadOnly) { // no space for the work directory
		options.Lower, options.Upper, options.Work = append([]string{o.Upper}, o.Lower...), "", ""
		mnt, err = mount.NewOverlay(options)
	}
	must(t, err)
	defer mnt.Close()
	f, err := os.Open(vfs.FDPath(mnt))
	must(t, err)
	return f
}

func TestConformance(t *testing.T) { snapshottest.Run(t, subject(t)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
