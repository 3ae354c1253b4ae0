package engine_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/workflow/transfer"
	"golang.org/x/sys/unix"
)

// What is mounted in the workspace here has its place in a sandbox that came from elsewhere.
func TestWhatIsMountedHereHasItsPlaceInWhatCame(t *testing.T) {
	treetest.NeedRoot(t)
	for name, there := range map[string]string{
		"nothing there": ":", "a directory there": "mkdir -p sub/data/deep; echo inner > sub/data/deep/f; chmod 711 sub/data; echo x > config",
	} {
		t.Run(name, func(t *testing.T) {
			p := &pairing{near: newBench(t), far: newBench(t)}
			p.far.mounted(t)
			p.near.write("file", "one")
			p.near.new("fix")
			p.near.in("fix", there)
			p.carry(t, transfer.SendRequest{Sandbox: "fix"})
			p.placed(t, there == ":")
		})
	}
}

// mounted mounts a filesystem at sub/data of the workspace, and a file on config.
func (b *bench) mounted(t *testing.T) {
	t.Helper()
	data, config := filepath.Join(b.workspace, "sub/data"), filepath.Join(b.workspace, "config")
	b.write("config", "beneath")
	b.write("over", "above")
	err := errors.Join(
		os.MkdirAll(data, 0o750), unix.Mount("snapfs-test", data, "tmpfs", 0, ""), os.WriteFile(filepath.Join(data, "i"), []byte("mounted"), 0o600),
		unix.Mount(filepath.Join(b.workspace, "over"), config, "", unix.MS_BIND, ""),
	)
	t.Cleanup(func() {
		for _, at := range []string{data, config} {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// placed looks that the sandbox can be entered, and what it is told to have changed.
func (p *pairing) placed(t *testing.T, untouched bool) {
	t.Helper()
	if text := p.far.in("fix", "cat file sub/data/i config"); text != "onemountedabove" {
		t.Errorf("it has %q", text)
	}
	changes, err := p.far.Compare.Diff(t.Context(), "fix", "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	for _, part := range changes.Parts {
		for _, c := range part.Changes {
			if c.Path != "file" && c.Path != "over" && c.Path != "." && untouched || c.Kind.String() == "deleted" && c.Path != "over" {
				t.Errorf("%s: %v %v", c.Path, c.Kind, c.What)
			}
		}
	}
	p.far.sound("with what is mounted")
}

// What would have to be there for it cannot be: nothing is made of what came.
func TestWhatCameOfAnotherTypeAtAPlaceIsRefused(t *testing.T) {
	treetest.NeedRoot(t)
	for there, place := range map[string]string{
		"mkdir sub; echo x > sub/data": "sub/data", "mkdir config": "config", "ln -s /tmp config": "config", "echo x > sub": "sub", "ln -s . sub": "sub",
	} {
		t.Run(there, func(t *testing.T) {
			p := &pairing{near: newBench(t), far: newBench(t)}
			p.far.mounted(t)
			p.near.new("fix")
			p.near.in("fix", there)
			p.refused(t, transfer.SendRequest{Sandbox: "fix"}, place)
			if list, err := p.far.List(t.Context(), true); err != nil || len(list) > 0 {
				t.Errorf("there are %+v, %v", list, err)
			}
		})
	}
}

// refused looks that what is sent is not received because of a place.
func (p *pairing) refused(t *testing.T, req transfer.SendRequest, place string) {
	t.Helper()
	way, _ := p.send(t, req)
	_, err := p.receive(bytes.NewReader(way))
	var told *errs.Error
	if !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), place) || !errors.As(err, &told) {
		t.Errorf("%s: %v", place, err)
	}
	p.far.sound("after what was refused")
}

// The difference to a state is about what was sent, and the places are none of that.
func TestADifferenceHasThePlacesOfWhatIsMountedHere(t *testing.T) {
	treetest.NeedRoot(t)
	for name, pair := range map[string]machines{
		"by the kernel, to btrfs":   func(t *testing.T) (*bench, *bench) { return wholeBtrfs(t), wholeBtrfs(t) },
		"by the kernel, to overlay": func(t *testing.T) (*bench, *bench) { return wholeBtrfs(t), newBench(t) },
		"by the walk": func(t *testing.T) (*bench, *bench) {
			return benchIn(t, treetest.Btrfs(t), treetest.Dir(t)), newBench(t)
		},
	} {
		if name == "by the kernel, to overlay" && !treetest.Long(t) {
			continue // it is sent as "to btrfs", and received as "by the walk"
		}
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			p := &pairing{near: near, far: far}
			far.mounted(t)
			near.write("file", "one")
			near.new("fix")
			near.in("fix", "mkdir sub; echo x > sub/x")
			p.carry(t, transfer.SendRequest{Sandbox: "fix"})
			far.removeLater("fix")
			for i, script := range []string{
				"echo more > sub/more; echo x > config", "rm -r sub config", "mkdir -p sub/data/deep; echo x > sub/data/deep/x; echo y > config", "rm -r sub/data; mkdir sub/data; chmod 750 sub",
				"mkdir more; mv sub more/moved; mv config more/config", "rm -r more; mkdir sub; echo x > sub/x",
				"mv sub moved", "rm -r moved",
			} {
				near.in("fix", script)
				has, err := transfer.New(far.Engine).Offers("fix")
				if err != nil {
					t.Fatal(err)
				}
				got := p.carry(t, transfer.SendRequest{Sandbox: "fix", Have: has})
				if got.New {
					t.Fatalf("after %q all is sent", script)
				}
				if err := far.Rollback(t.Context(), "fix", got.State); err != nil {
					t.Fatal(err)
				}
				if text := far.in("fix", "cat file sub/data/i config"); text != "onemountedabove" {
					t.Errorf("after %q it has %q", script, text)
				}
				p.likeThere(t, i, got)
			}
			near.in("fix", "mkdir -p sub; echo x > sub/data")
			has, err := transfer.New(far.Engine).Offers("fix")
			if err != nil {
				t.Fatal(err)
			}
			p.refused(t, transfer.SendRequest{Sandbox: "fix", Have: has}, "sub/data")
			if now, err := transfer.New(far.Engine).Offers("fix"); err != nil || len(now) < len(has) {
				t.Errorf("it has %v, %v, and had %v", now, err, has)
			}
		})
	}
}

// likeThere looks that a state has what was sent, and besides that places alone.
func (p *pairing) likeThere(t *testing.T, step int, got transfer.Received) {
	t.Helper()
	names := func(b *bench) []string {
		dir, err := openState(t.Context(), b.Engine, "fix", got.State)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		var all []string
		err = filepath.WalkDir(vfs.FDPath(dir)+"/.", func(at string, d os.DirEntry, err error) error {
			rel := strings.TrimPrefix(at, vfs.FDPath(dir)+"/")
			if rel != "sub" && rel != "sub/data" && rel != "config" && !strings.HasPrefix(rel, ".snapfs") {
				all = append(all, rel)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if want, have := names(p.near), names(p.far); !slices.Equal(want, have) {
		t.Errorf("step %d: it has %q, and not %q", step, have, want)
	}
}
