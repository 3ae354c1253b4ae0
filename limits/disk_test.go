package limits

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestRatesHold checks each of the four rates with a process that reads or writes past the page cache as fast
// as possible.
func TestRatesHold(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Ext4(t, 64<<20)
	treetest.Leaks(t)
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, make([]byte, 8<<20), 0o600))
	devices, err := DisksOf(dir)
	must(t, err)
	for name, c := range map[string]struct {
		role string
		l    Limits
		part Part
	}{
		"read rate":        {"read", Limits{ReadRate: 4 << 20}, PartReadRate},
		"write rate":       {"write", Limits{WriteRate: 4 << 20}, PartWriteRate},
		"read operations":  {"read", Limits{ReadOps: 8}, PartReadOps}, // a MiB takes at least one
		"write operations": {"write", Limits{WriteOps: 8}, PartWriteOps},
	} {
		t.Run(name, func(t *testing.T) {
			g := started(t, c.l, Options{Devices: devices})
			if by := held(g, c.part); by != ByCgroup1 && by != ByCgroup2 {
				t.Error("held by", by)
			}
			b := newChild(t, g, c.role+" "+file, nil).begin()
			start := time.Now()
			for range 5 {
				if s := b.line(); s != c.role+" <nil>" {
					t.Fatal(s)
				}
			}
			// 5 MiB at 4 MiB/s or at 8 requests a second, less the kernel's initial burst.
			if took := time.Since(start); took < 400*time.Millisecond {
				t.Errorf("5 MiB in %v", took)
			}
			u, err := g.Usage()
			must(t, err)
			volume, ops := u.Read, u.ReadOps
			if c.role == "write" {
				volume, ops = u.Written, u.WriteOps
			}
			if volume.Value < 4<<20 || ops.Value < 4 {
				t.Errorf("%+v", u)
			}
			must(t, g.Set(t.Context(), Limits{PIDs: 100})) // blocked requests continue
			closes(t, g)
		})
	}
}

func TestDisksOf(t *testing.T) {
	treetest.NeedRoot(t)
	for _, dir := range []string{treetest.Ext4(t, 16<<20), treetest.Small(t, "btrfs", 64<<20)} {
		list, err := DisksOf(dir)
		if err != nil || len(list) != 1 || unix.Major(list[0]) != 7 { // a loop device
			t.Errorf("%s: %v %v", dir, list, err)
		}
	}
	var e *errs.Error
	if _, err := DisksOf("/proc"); !errors.As(err, &e) || !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "proc has no disk") {
		t.Error(err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(treetest.Small(t, "btrfs", 64<<20), &st))
	if _, err := Start(t.Context(), "sandbox", Limits{ReadRate: 1 << 20}, Options{Devices: []uint64{st.Dev}}); !errors.Is(err, errs.ErrNotSupported) ||
		!strings.Contains(err.Error(), "btrfs") {
		t.Error("an anonymous device:", err)
	}
	g := started(t, Limits{}, Options{Devices: []uint64{st.Dev}, Count: true}) // counting needs no disk
	if err := g.Set(t.Context(), Limits{ReadRate: 1 << 20}); !errors.Is(err, errs.ErrNotSupported) {
		t.Error("an anonymous device, set later:", err)
	}
	closes(t, g)
	if _, err := Start(t.Context(), "sandbox", Limits{ReadRate: 1 << 20}, Options{}); !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "no disk") {
		t.Error("no device:", err)
	}
}

// TestPartitionsHaveADisk: every partition of this machine has a disk.
func TestPartitionsHaveADisk(t *testing.T) {
	parts, _ := filepath.Glob("/sys/class/block/*/partition")
	for _, part := range parts {
		dev, err := readDev(filepath.Dir(part) + "/dev")
		must(t, err)
		disk, err := diskOf(dev)
		must(t, err)
		link, err := os.Readlink(filepath.Dir(part))
		must(t, err)
		whole, err := readDev("/sys/class/block/" + filepath.Base(filepath.Dir(link)) + "/dev")
		if err != nil || whole != disk || disk == dev {
			t.Errorf("%s: %x, want %x (%v)", part, disk, whole, err)
		}
	}
}
