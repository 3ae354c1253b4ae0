//go:build vm

package zfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// keyed returns the options of an encrypted dataset, with a key file beside the test.
func keyed(t *testing.T) []string {
	t.Helper()
	key := treetest.Dir(t) + "/key"
	must(t, os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600))
	return []string{"-o", "encryption=on", "-o", "keyformat=raw", "-o", "keylocation=file://" + key}
}

func TestDatasetsOfEveryKindAreCapturedAndForked(t *testing.T) {
	for kind, make := range map[string]func(t *testing.T) snapshot.Place{
		"encrypted": func(t *testing.T) snapshot.Place { return place(t, keyed(t)...) },
		"mounted by mount(8)": func(t *testing.T) snapshot.Place {
			p := place(t)
			dir := filepath.Dir(p.Dir) + "/by-hand"
			must(t, os.Mkdir(dir, 0o755))
			tree := of(t, p)
			sh(t, "set", "mountpoint=legacy", tree)
			must(t, unix.Mount(tree, dir, "zfs", 0, ""))
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			p.Tree.Path = dir
			return p
		},
		"beneath one with canmount=off": func(t *testing.T) snapshot.Place {
			p := place(t)
			top := filepath.Dir(of(t, p))
			sh(t, "set", "canmount=off", top)
			sh(t, "mount", "-a")
			return p
		},
		"with .zfs to be seen": func(t *testing.T) snapshot.Place { return place(t, "-o", "snapdir=visible") },
		"with .zfs hidden":     func(t *testing.T) snapshot.Place { return place(t, "-o", "snapdir=hidden") },
	} {
		t.Run(kind, func(t *testing.T) { livesThrough(t, make(t)) })
	}
}

// livesThrough changes, seals and forks a fork of a place.
func livesThrough(t *testing.T, p snapshot.Place) {
	t.Helper()
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("base"), 0o600))
	s, f := grown(t, b, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("later"), 0o600))
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork"), 0o600))
	sealed, err := b.Seal(t.Context(), "f1", "s2", snapshot.Idle)
	must(t, err)
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork, later"), 0o600))
	again, err := b.Fork(t.Context(), "s2", "f2")
	must(t, err)
	for view, want := range map[snapshot.View]string{s.View: "base", f.View: "fork, later", sealed.View: "fork", again.View: "fork", {Path: p.Tree.Path}: "later"} {
		reads(t, view.Path+"/file", want)
	}
	must(t, b.RemoveFork(t.Context(), "f2"))
	must(t, b.Remove(t.Context(), "s2"))
	gone(t, b)
}

// The fork is available again when its key is loaded.
func TestAForkWithoutItsKeyIsDenied(t *testing.T) {
	p := place(t, keyed(t)...)
	b := opened(t, p)
	_, f := grown(t, b, p)
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork"), 0o600))
	tree := of(t, p)
	top := filepath.Dir(tree)
	for _, dir := range []string{f.View.Path, strings.Replace(f.View.Path, "/forks/f1/", "/snapshots/s1/", 1)} {
		must(t, unix.Unmount(dir, 0))
	}
	sh(t, "unmount", top)
	sh(t, "unload-key", top)
	_, err := b.LookupFork(t.Context(), "f1")
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrDenied) || len(e.Hints) == 0 || !strings.HasPrefix(e.Hints[0], "sudo zfs load-key -r ") {
		t.Errorf("without its key: %#v", err)
	}
	sh(t, "load-key", top)
	sh(t, "mount", top)
	sh(t, "mount", tree)
	f, err = b.LookupFork(t.Context(), "f1")
	must(t, err)
	reads(t, f.View.Path+"/file", "fork")
	gone(t, b)
}

// An entry removed meanwhile is destroyed after the next import.
func TestAnExportedPoolIsReportedAndForgetsNothing(t *testing.T) {
	pool, disks, p := ofFiles(t, "")
	sh(t, "create", pool+"/tree") // zpool(8) leaves snapshots of a pool's first dataset mounted
	p.Tree.Path += "/tree"
	b := opened(t, p)
	_, f := grown(t, b, p)
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork"), 0o600))
	_, err := b.Fork(t.Context(), "s1", "f2")
	must(t, err)
	held, err := os.Open(f.View.Path + "/file")
	must(t, err)
	if out, err := run.Output(t.Context(), "zpool", "export", pool); err == nil {
		t.Errorf("a pool in use was exported: %s", out)
	}
	must(t, held.Close())
	zpool(t, "export", pool)
	for what, do := range map[string]func() error{
		"looking up": func() error { _, err := b.LookupFork(t.Context(), "f1"); return err },
		"forking":    func() error { _, err := b.Fork(t.Context(), "s1", "f3"); return err },
		"sealing":    func() error { _, err := b.Seal(t.Context(), "f1", "s3", snapshot.Idle); return err },
	} {
		err := do()
		var e *errs.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "the pool "+pool+" is not imported") || len(e.Hints) == 0 || e.Hints[0] != "sudo zpool import "+pool {
			t.Errorf("%s in an exported pool: %v", what, err)
		}
	}
	must(t, b.RemoveFork(t.Context(), "f2"))
	must(t, b.Sweep(t.Context()))
	zpool(t, "import", "-d", filepath.Dir(disks[0]), pool)
	f, err = b.LookupFork(t.Context(), "f1")
	must(t, err)
	reads(t, f.View.Path+"/file", "fork")
	gone(t, b)
	if got := strings.Fields(sh(t, "list", "-H", "-r", "-t", "all", "-o", "name", pool+"/tree")); len(got) > 2 {
		t.Errorf("left behind: %q", got)
	}
	sh(t, "destroy", "-r", pool+"/tree")
}
