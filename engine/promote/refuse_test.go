package promote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestSetIDAndDevicesAreRefusedUnlessApproved(t *testing.T) {
	treetest.NeedRoot(t)
	mode := func(path string, bits uint32) treetest.Step {
		s := do(treetest.Chmod, path, "")
		s.Mode = bits
		return s
	}
	device := do(treetest.Device, "device", "")
	device.Mode, device.Dev = unix.S_IFCHR|0o600, unix.Mkdev(1, 3)
	caps := do(treetest.Setxattr, "caps", "")
	caps.Attr, caps.Value = "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	w := newWorld(t, treetest.Dir(t),
		treetest.Script{file("becomes-suid", 1, 10), file("was-suid", 1, 10), mode("was-suid", 0o4755), file("caps", 2, 10)},
		treetest.Script{
			mode("becomes-suid", 0o4755), do(treetest.Utimes, "was-suid", ""), file("new-sgid", 3, 10), mode("new-sgid", 0o2755), device, caps,
			do(treetest.Mkdir, "shared", ""), mode("shared", 0o2775), file("shared/deep-suid", 4, 10), mode("shared/deep-suid", 0o4755),
		})
	old := manifest(t, w)
	for want, allow := range map[string]approval.Allow{
		"becomes-suid caps device new-sgid shared/deep-suid": {},
		"device":                {SetID: true, Capabilities: true},
		"caps":                  {SetID: true, Devices: true},
		"becomes-suid new-sgid": {Paths: []string{"shared", "device", "ca*"}},
	} {
		o := options(w.frozen())
		o.Allow = allow
		_, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o)
		if !errors.Is(err, errs.ErrDenied) || strings.Join(w.listed(err), " ") != want {
			t.Errorf("%+v: %v, want %s", allow, err, want)
		}
		if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
			t.Errorf("touched %q", l)
		}
	}
	_, err := w.apply(t, w.frozen())
	must(t, err)
	w.arrived(t)
}

func TestAHardLinkOutsideOfTheChangesIsRefused(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10)})
	must(t, os.Link(w.real.Name()+"/a", filepath.Join(w.top, "another-name")))
	b := w.frozen()
	old := manifest(t, w)
	_, err := w.apply(t, b)
	if !errors.Is(err, errs.ErrConflict) || !strings.Contains(err.Error(), "hard link") {
		t.Errorf("got %v", err)
	}
	if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
		t.Errorf("touched %q", l)
	}
}

func TestSocketsAreSkippedAndReported(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, treetest.Script{file("a", 1, 1), do(treetest.Socket, "s", "")})
	r, err := w.apply(t, w.frozen())
	if err != nil || strings.Join(r.Skipped, " ") != "s" || r.Applied != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAFullFilesystemLeavesTheOldTree(t *testing.T) {
	for _, fs := range []string{"ext4", "btrfs", "tmpfs"} {
		t.Run(fs, func(t *testing.T) {
			small := treetest.Small(t, fs, 64<<20)
			w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)},
				treetest.Script{do(treetest.Unlink, "a", ""), file("a", 2, 10), file("big", 4, 80<<20)})
			must(t, os.Mkdir(filepath.Join(small, "real"), 0o755))
			w.real = treetest.Open(t, filepath.Join(small, "real"))
			must(t, treetest.Script{file("a", 1, 10)}.Play(w.real))
			old, b := manifest(t, w), w.frozen()
			_, err := w.apply(t, b)
			if !errors.Is(err, errs.ErrNoSpace) {
				t.Errorf("got %v", err)
			}
			if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
				t.Errorf("touched %q", l)
			}
			w.clean(t)
			left, err := os.ReadDir(small)
			must(t, err)
			for _, e := range left {
				if strings.HasPrefix(e.Name(), ".snapfs") {
					t.Errorf("left behind: %s", e.Name())
				}
			}
		})
	}
}

func TestImmutableFilesAreRefusedBeforeAnyChange(t *testing.T) {
	treetest.NeedRoot(t)
	t.Run("immutable", func(t *testing.T) {
		w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10), file("b", 1, 10)},
			treetest.Script{do(treetest.Unlink, "a", ""), do(treetest.Unlink, "b", "")})
		f := treetest.Open(t, w.real.Name()+"/b")
		must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0x10 /* FS_IMMUTABLE_FL of linux/fs.h */))
		defer unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)
		if _, err := w.apply(t, w.frozen()); !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), "b: it is immutable") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(w.real.Name() + "/a"); err != nil {
			t.Error(err)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		w := newWorld(t, treetest.Dir(t), nil, treetest.Script{file("a", 1, 10)})
		w.real = treetest.Open(t, treetest.Ext4(t, 16<<20, "ro"))
		_, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), options(w.frozen()))
		if !errors.Is(err, errs.ErrReadOnly) {
			t.Errorf("got %v", err)
		}
	})
}

func TestATargetThatSpansFilesystemsIsAppliedWhole(t *testing.T) {
	root := treetest.Btrfs(t)
	w := newWorld(t, root, treetest.Script{do(treetest.Mkdir, "plain", ""), file("plain/a", 1, 10)}, nil)
	// A separate filesystem below the target; a directory in the others.
	sub := filepath.Join(w.real.Name(), "mnt")
	for _, f := range []*os.File{w.base, w.sandbox} {
		must(t, os.MkdirAll(f.Name()+"/mnt/d", 0o755))
		must(t, treetest.Script{file("mnt/d/b", 2, 10)}.Play(f))
	}
	must(t, os.Mkdir(sub, 0o755))
	must(t, unix.Mount("tmpfs", sub, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(sub, 0)) })
	must(t, os.Mkdir(sub+"/d", 0o755))
	must(t, treetest.Script{file("mnt/d/b", 2, 10)}.Play(w.real))
	must(t, treetest.Script{
		do(treetest.Unlink, "plain/a", ""), file("plain/a", 3, 10), do(treetest.Unlink, "mnt/d/b", ""),
		file("mnt/d/b", 4, 10), file("mnt/d/c", 5, 10),
	}.Play(w.sandbox))
	old := manifest(t, w)
	cancelled, cancel := context.WithCancel(t.Context())
	if _, err := promote.Apply(during(cancelled, "alter", cancel), w.target(), w.source(), w.changes(t, w.frozen()), options(w.frozen())); !errors.Is(err, errs.ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
	if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
		t.Errorf("interrupted, and left %q", l)
	}
	_, err := w.apply(t, w.frozen())
	must(t, err)
	w.arrived(t)
}
