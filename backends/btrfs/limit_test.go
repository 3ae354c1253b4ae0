//go:build linux

package btrfs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

const aLimit = 4 << 20

// limited returns a backend with a fork f1 of a tree with a nested subvolume, on a filesystem with
// simple quotas.
func limited(t *testing.T) (b *Backend, top *os.File, fork string) {
	t.Helper()
	b, tree := fixture(t)
	top = treetest.Open(t, b.top)
	quota(t, top, btrfs.QuotaSimple)
	subvolume(t, tree.Path+"/nested")
	write(t, tree.Path+"/nested/file", "old")
	_, f, err := b.Clone(t.Context(), tree, "s1", "f1")
	if err == nil {
		err = b.LimitFork(t.Context(), "f1", snapshot.DiskLimit{Bytes: aLimit})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, top, f.View.Path
}

func quota(t *testing.T, top *os.File, mode btrfs.QuotaMode) {
	t.Helper()
	if err := btrfs.SetQuota(int(top.Fd()), mode); err != nil {
		t.Fatal(err)
	}
}

func wantGroups(t *testing.T, top *os.File, want int, when string) {
	t.Helper()
	groups, err := btrfs.Groups(int(top.Fd()), qgroup.Level)
	if err != nil || len(groups) != want {
		t.Errorf("%s the groups are %x, %v, want %d", when, groups, err, want)
	}
}

// wantOverLimit checks that a file of 3 MiB at path exceeds the limit.
func wantOverLimit(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, 3<<20), 0o600); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("%s: %v", path, err)
	}
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

func TestNestedSubvolumesShareTheLimitOfAFork(t *testing.T) {
	b, _, fork := limited(t)
	subvolume(t, fork+"/mine")
	subvolume(t, fork+"/mine/deep")
	subvolume(t, fork+"/nested/deep")
	write(t, fork+"/file", strings.Repeat("x", 1<<20))
	write(t, fork+"/mine/file", strings.Repeat("x", 1<<20))
	for _, path := range []string{"/big", "/mine/big", "/mine/deep/big", "/nested/big", "/nested/deep/big"} {
		wantOverLimit(t, fork+path)
	}
	if used, err := b.Usage(t.Context(), "f1"); err != nil || used < 2<<20 || used > aLimit {
		t.Errorf("the usage is %v, %v", used, err)
	}
}

func TestRemovedForksLeaveNoQuotaGroup(t *testing.T) {
	b, top, fork := limited(t)
	wantGroups(t, top, 1, "with a limit")
	subvolume(t, fork+"/mine")
	write(t, fork+"/file", strings.Repeat("x", 3<<20))
	if err := b.LimitFork(t.Context(), "f1", snapshot.DiskLimit{}); err != nil {
		t.Fatal(err)
	}
	wantGroups(t, top, 0, "when it is lifted")
	write(t, fork+"/more", strings.Repeat("x", 3<<20))
	if err := b.LimitFork(t.Context(), "f1", snapshot.DiskLimit{Bytes: aLimit}); err != nil {
		t.Fatal(err)
	}
	wantGroups(t, top, 1, "when it is set again")
	if _, err := b.Seal(t.Context(), "f1", "s2", snapshot.InUse); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.RemoveFork(t.Context(), "f1"), b.Sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	wantGroups(t, top, 0, "when the fork is removed, and a snapshot shares what it wrote,")
}

func TestLimitDoesNotTurnOnQuotasOfAForeignFilesystem(t *testing.T) {
	b, tree := fixture(t)
	top := treetest.Open(t, b.top)
	if _, _, err := b.Clone(t.Context(), tree, "s1", "f1"); err != nil {
		t.Fatal(err)
	}
	refused := func(l snapshot.DiskLimit, hint string) {
		t.Helper()
		for _, err := range []error{b.CanLimit(t.Context(), l), b.LimitFork(t.Context(), "f1", l)} {
			var e *errs.Error
			if !errors.Is(err, errs.ErrNotSupported) || !errors.As(err, &e) || !strings.Contains(strings.Join(e.Hints, "\n"), hint) {
				t.Errorf("%v, %+v, want the hint %q", err, e, hint)
			}
		}
	}
	refused(snapshot.DiskLimit{Bytes: aLimit}, "btrfs quota enable --simple "+b.top)
	if mode, err := btrfs.QuotaModeOf(int(top.Fd())); err != nil || mode != btrfs.QuotaOff {
		t.Errorf("quotas are %s, %v", mode, err)
	}
	quota(t, top, btrfs.QuotaFull)
	refused(snapshot.DiskLimit{Bytes: aLimit}, "btrfs quota disable "+b.top)
	quota(t, top, btrfs.QuotaOff)
	quota(t, top, btrfs.QuotaSimple)
	refused(snapshot.DiskLimit{Bytes: aLimit, Inodes: 1}, "--backend overlay")
	if err := b.CanLimit(t.Context(), snapshot.DiskLimit{Bytes: aLimit}); err != nil {
		t.Error(err)
	}
}

func TestLimitTurnsOnQuotasOfAnOwnFilesystem(t *testing.T) {
	b, tree := fixture(t)
	b.Own()
	top := treetest.Open(t, b.top)
	_, f, err := b.Clone(t.Context(), tree, "s1", "f1")
	if err != nil {
		t.Fatal(err)
	}
	l := snapshot.DiskLimit{Bytes: aLimit}
	if err := b.CanLimit(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if mode, err := btrfs.QuotaModeOf(int(top.Fd())); err != nil || mode != btrfs.QuotaOff {
		t.Errorf("CanLimit changed the quota mode to %s, %v", mode, err)
	}
	if err := b.LimitFork(t.Context(), "f1", l); err != nil {
		t.Fatal(err)
	}
	write(t, f.View.Path+"/fits", strings.Repeat("x", 2<<20))
	wantOverLimit(t, f.View.Path+"/big")
}

// A subvolume that joined no group when it was made is added by the next call.
func TestARepeatedLimitAddsEscapedSubvolumes(t *testing.T) {
	b, top, fork := limited(t)
	out := subvolume(t, fork+"/out")
	info, err := btrfs.Info(int(treetest.Open(t, out).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := btrfs.Groups(int(top.Fd()), qgroup.Level)
	if err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	if err := btrfs.LeaveGroup(int(top.Fd()), info.ID, groups[0]); err != nil {
		t.Fatal(err)
	}
	write(t, out+"/escaped", strings.Repeat("x", 3<<20))
	if err := b.LimitFork(t.Context(), "f1", snapshot.DiskLimit{Bytes: aLimit}); err != nil {
		t.Fatal(err)
	}
	wantOverLimit(t, fork+"/big")
}
