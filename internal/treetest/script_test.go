//go:build linux

package treetest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func play(t *testing.T, s Script, roots ...*os.File) {
	t.Helper()
	for _, root := range roots {
		if err := s.Play(root); err != nil {
			t.Fatalf("on %s: %v", root.Name(), err)
		}
	}
}

func TestAScriptMakesTheSameTreeOnEveryFilesystem(t *testing.T) {
	NeedRoot(t)
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			plain, btrfs := Open(t, Dir(t)), Open(t, Btrfs(t))
			w := NewWriter(seed, Powers{Root: true})
			play(t, w.Deep(), plain, btrfs)
			play(t, w.Script(400), plain, btrfs)
			// The roots themselves were made by different hands.
			must(t, unix.Fchmod(int(plain.Fd()), 0o755))
			must(t, unix.Fchmod(int(btrfs.Fd()), 0o755))
			Compare(t, plain, btrfs, Options{})
			if n := strings.Count(Manifest(t, plain.Name(), Options{}), "\n"); n != len(w.nodes)+1 {
				t.Errorf("%d nodes, the writer knows %d", n, len(w.nodes)+1)
			}
		})
	}
}

func TestAScriptFitsAnOverlay(t *testing.T) {
	NeedRoot(t)
	NeedFS(t, "overlay")
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			plain, disk := Open(t, Dir(t)), Ext4(t, 256<<20)
			o := mount.Overlay{
				Lower: []string{disk + "/lower"}, Upper: disk + "/upper", Work: disk + "/work",
				RedirectDir: true, Metacopy: true, Volatile: true, NoIndex: true,
			}
			for _, dir := range []string{o.Lower[0], o.Upper, o.Work} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			w := NewWriter(seed, Powers{Root: true, KeepOldLinks: true, ShortRenames: true})
			lower := Open(t, o.Lower[0])
			play(t, w.Deep(), plain, lower)
			play(t, w.Script(200), plain, lower)
			w.Freeze()
			m, err := mount.NewOverlay(o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			view := Open(t, vfs.FDPath(m))
			play(t, w.Script(300), plain, view)
			Compare(t, plain, view, Options{NoDirTimes: true, NoLinks: true})
		})
	}
}

func TestAnOrdinaryUserCanPlayScripts(t *testing.T) {
	if !AsUser(t) {
		return
	}
	a, b := Open(t, Dir(t)), Open(t, Dir(t))
	w := NewWriter(7, Powers{})
	play(t, w.Script(500), a, b)
	Compare(t, a, b, Options{})
}

func TestScriptsAreReproducible(t *testing.T) {
	first, second := NewWriter(3, Powers{Root: true}), NewWriter(3, Powers{Root: true})
	if !reflect.DeepEqual(first.Script(300), second.Script(300)) {
		t.Error("the same seed wrote another script")
	}
	if !reflect.DeepEqual(first.Clone(9).Script(300), second.Clone(9).Script(300)) {
		t.Error("the same clone wrote another script")
	}
}

func TestScriptsHoldEveryOperation(t *testing.T) {
	seen := map[Op]int{}
	for _, step := range NewWriter(1, Powers{Root: true}).Script(3000) {
		seen[step.Op]++
	}
	for _, op := range choices() {
		if seen[op] < 5 {
			t.Errorf("%s: %d times in 3000 steps", op, seen[op])
		}
	}
}

func TestEverySingleDifferenceIsFound(t *testing.T) {
	NeedRoot(t)
	base := Script{
		{Op: Mkdir, Path: "d", Mode: 0o755},
		{Op: Create, Path: "d/f", Mode: 0o644, Size: 100, Seed: 1},
		{Op: Symlink, Path: "l", To: "x"},
		{Op: Device, Path: "dev", Mode: unix.S_IFCHR | 0o600, Dev: unix.Mkdev(1, 3)},
		{Op: Link, Path: "d/f", To: "g"},
		{Op: Create, Path: "h", Mode: 0o644, Size: 100, Seed: 1},
		{Op: Setxattr, Path: "h", Attr: "user.a", Value: []byte("1")},
	}
	for _, change := range []Script{
		{{Op: Create, Path: "new"}},
		{{Op: Unlink, Path: "l"}},
		{{Op: Write, Path: "h", Size: 1, Seed: 2}},
		{{Op: Append, Path: "h", Size: 1}},
		{{Op: Chmod, Path: "d", Mode: 0o700}},
		{{Op: Chown, Path: "l", UID: 1}},
		{{Op: Chown, Path: "dev", GID: 1}},
		{{Op: Utimes, Path: "h", Time: 5}},
		{{Op: Setxattr, Path: "h", Attr: "user.a", Value: []byte("2")}},
		{{Op: Setxattr, Path: "d", Attr: "user.a"}},
		{{Op: Setxattr, Path: "d", Attr: "system.posix_acl_default", Value: acl(4)}},
		{{Op: Setxattr, Path: "h", Attr: "security.capability", Value: Capability(1)}},
		{{Op: Unlink, Path: "g"}, {Op: Create, Path: "g", Mode: 0o644, Size: 100, Seed: 1}}, // no link any more
		{{Op: Unlink, Path: "g"}, {Op: Link, Path: "h", To: "g"}},
		{{Op: Unlink, Path: "l"}, {Op: Symlink, Path: "l", To: "y"}},
		{{Op: Unlink, Path: "dev"}, {Op: Device, Path: "dev", Mode: unix.S_IFCHR | 0o600, Dev: unix.Mkdev(1, 5)}},
		{{Op: Unlink, Path: "dev"}, {Op: Device, Path: "dev", Mode: unix.S_IFBLK | 0o600, Dev: unix.Mkdev(1, 3)}},
	} {
		a, b := Open(t, Dir(t)), Open(t, Dir(t))
		play(t, base, a, b)
		if list, err := Differences(a, b, Options{}); err != nil || len(list) != 0 {
			t.Fatalf("equal trees: %q, %v", list, err)
		}
		play(t, change, b)
		if list, err := Differences(a, b, Options{}); err != nil || len(list) == 0 {
			t.Errorf("%v was not found, %v", change, err)
		}
	}
}

func TestALostHoleIsFound(t *testing.T) {
	a, b := Open(t, Dir(t)), Open(t, Dir(t))
	zeros := make([]byte, 1<<20)
	for root, n := range map[*os.File]int{a: 0, b: 1 << 20} {
		path := filepath.Join(root.Name(), "f")
		if err := os.WriteFile(path, zeros[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	unix.Sync()
	probe := &testing.T{}
	Holes(probe, b, a, "f")
	if probe.Failed() {
		t.Error("a file with more holes counts as worse")
	}
	if st, _ := vfs.Lstat(int(b.Fd()), "f"); st.Blocks == 0 {
		t.Fatal("the file has no blocks")
	}
	Holes(probe, a, b, "f")
	if !probe.Failed() {
		t.Error("not found")
	}
}
