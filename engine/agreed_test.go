package engine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// Where the person and a sandbox have made the same change, a promotion finds them agreed. What the person does there
// later is no conflict with that change, and stays.
func TestWhatBothSidesChangedAlikeIsTheBaseOfWhatFollows(t *testing.T) {
	for name, c := range map[string]struct{ inside, outside, later string }{
		"replaced, edited":          {"echo new > f", "echo new > f", "echo later > f"},
		"replaced, removed":         {"echo new > f", "echo new > f", "rm f"},
		"made, edited":              {"echo new > n", "echo new > n", "echo later > n"},
		"made, removed":             {"echo new > n", "echo new > n", "rm n"},
		"renamed, edited":           {"mv f g", "mv f g", "echo later > g"},
		"mode changed, and changed": {"chmod 600 f", "chmod 600 f", "chmod 640 f"},
	} {
		for place, elsewhere := range map[string]string{"": "", "with another change": "echo other > other"} {
			t.Run(name+" "+place, func(t *testing.T) {
				asBoth(t, func(t *testing.T, b *bench) {
					b.write("f", "old\n")
					if err := os.Mkdir(filepath.Join(b.workspace, "d"), 0o755); err != nil {
						t.Fatal(err)
					}
					b.write("d/f", "old\n")
					tick()
					b.new("s")
					b.in("s", c.inside+"\n"+elsewhere)
					tick() // a file of the same change time is taken for the real one, seen in the sandbox
					b.outside(c.outside)
					if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
						t.Fatal(err)
					}
					b.outside(c.later)
					want := b.outside("ls -l; ls d; cat f n g d/f 2>&1 || true")
					if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
						t.Error(err)
					}
					if got := b.outside("ls -l; ls d; cat f n g d/f 2>&1 || true"); got != want {
						t.Errorf("the workspace is\n%s\nwant\n%s", got, want)
					}
				})
			})
		}
	}
}

// Where both sides have removed a file, the base stays: on a live base the sandbox may see what the user makes there
// later. So the user's new file is a conflict with the removal, and stays as it is.
func TestWhatTheUserMakesWhereBothSidesRemovedIsAConflict(t *testing.T) {
	for removal, later := range map[string]string{"rm f": "echo later > f", "rm -r d": "mkdir d; echo later > d/f"} {
		t.Run(removal, func(t *testing.T) {
			asBoth(t, func(t *testing.T, b *bench) {
				b.write("f", "old\n")
				b.mkdir("d")
				b.write("d/f", "old\n")
				tick()
				b.new("s")
				b.in("s", removal)
				b.outside(removal)
				if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
					t.Fatal(err)
				}
				b.outside(later)
				want := b.outside("cat f d/f 2>&1 || true")
				if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); !errors.Is(err, errs.ErrConflict) {
					t.Errorf("the promotion says %v", err)
				}
				if got := b.outside("cat f d/f 2>&1 || true"); got != want {
					t.Errorf("the workspace has %q, want %q", got, want)
				}
			})
		})
	}
}

// A file of the user's that a sandbox sees where it had made and removed one is no change of the sandbox. When the
// sandbox edits a version of it that the user takes back, that is a conflict.
func TestAFileThatTheSandboxOnlySeesIsNotAgreedOn(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("s")
		b.in("s", "echo a > n")
		b.in("s", "rm n")
		b.outside("printf '1\n2\n3\n' > n")
		b.in("s", "echo x > other")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.outside("sed -i s/1/one/ n")
		b.in("s", "sed -i s/3/three/ n")
		b.outside("sed -i s/one/1/ n")
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); !errors.Is(err, errs.ErrConflict) {
			t.Errorf("the promotion says %v", err)
		}
		if got := b.read("n"); got != "1\n2\n3\n" {
			t.Errorf("n is %q", got)
		}
	})
}

// A sandbox's change where the host mounts something over the real file is promoted once the mount is gone: as long as
// it covers the real file, a promotion does not take the two for the same.
func TestWhatAMountCoversIsPromotedLater(t *testing.T) {
	for _, covered := range []string{"sub", "sub/f"} {
		t.Run(covered, func(t *testing.T) {
			asRoot(t, func(t *testing.T, b *bench) {
				b.mkdir("sub")
				b.write("sub/f", "old\n")
				tick()
				b.new("s")
				b.in("s", "echo mine > sub/f; echo other > other")
				target, file := filepath.Join(b.workspace, covered), filepath.Join(t.TempDir(), "file")
				source, kind, flags := "snapfs-test", "tmpfs", uintptr(0)
				if covered == "sub/f" {
					if err := os.WriteFile(file, []byte("over\n"), 0o644); err != nil {
						t.Fatal(err)
					}
					source, kind, flags = file, "", unix.MS_BIND
				}
				if err := unix.Mount(source, target, kind, flags, ""); err != nil {
					t.Fatal(err)
				}
				off := sync.OnceValue(func() error { return unix.Unmount(target, unix.MNT_DETACH) })
				t.Cleanup(func() { _ = off() })
				o := reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Only: []string{"other"}}}
				_, err := b.Reconcile.Promote(t.Context(), "s", o)
				if err = errors.Join(err, off()); err != nil {
					t.Fatal(err)
				}
				_, err = b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
				if got := b.outside("cat other sub/f"); err != nil || got != "other\nmine\n" {
					t.Errorf("the workspace has %q; %v", got, err)
				}
			})
		})
	}
}

// Changed files in a directory that the user may not read do not keep a promotion from recording what it promoted and
// what both sides made alike.
func TestAnUnreadableFileDoesNotKeepOthersFromAgreeing(t *testing.T) {
	asUser(t, func(t *testing.T, b *bench) {
		b.mkdir("d")
		b.write("d/f", "old\n")
		tick()
		b.new("s")
		promote := func() {
			t.Helper()
			if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
				t.Error(err)
			}
		}
		b.in("s", "echo x > d/f; echo first > first")
		promote()
		b.in("s", "chmod 000 d; echo new > new; echo other > other")
		tick()
		b.outside("echo new > new; chmod 000 d")
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(b.workspace, "d"), 0o700) })
		promote()
		b.outside("echo later > new; rm other")
		b.in("s", "echo more > more")
		promote()
		if got := b.outside("ls; cat new"); got != "d\nfirst\nmore\nnew\nlater\n" {
			t.Errorf("the workspace has %q", got)
		}
	})
}

// outside runs a script of the person in the workspace, and returns its output.
func (b *bench) outside(script string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = b.workspace
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, out)
	}
	tick() // what follows is later, by the clock of files
	return string(out)
}
