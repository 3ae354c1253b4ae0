package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// mounterEnv tells the user's half of a test that root is there to mount.
const mounterEnv = "SNAPFS_TEST_MOUNTER"

// withMounter runs the calling test as an ordinary user, and beside it, as root,
// mounter with that user's home. In the user's half it answers true.
func withMounter(t *testing.T, mounter func(home string, done <-chan struct{}) error) bool {
	t.Helper()
	if os.Getenv(mounterEnv) != "" {
		return true
	}
	treetest.NeedRoot(t)
	a := treetest.User(t)
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- mounter(a.Home, done) }()
	t.Cleanup(func() { // also where the user's half ends this one
		close(done)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	treetest.RunAs(t, a, t.Name(), treetest.WithEnv(mounterEnv+"=1"))
	return false
}

// mounted makes dir and mounts a tmpfs there, which off takes away.
func mounted(dir string) (off func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("snapfs-test", dir, "tmpfs", 0, "size=4096"); err != nil {
		return nil, err
	}
	return func() error { return unix.Unmount(dir, unix.MNT_DETACH) }, nil
}

func TestMountsThatComeAndGoDisturbNobody(t *testing.T) {
	var times atomic.Int64
	user := withMounter(t, func(home string, done <-chan struct{}) error {
		for {
			select {
			case <-done:
				return nil
			case <-time.After(time.Duration(times.Add(1)%7) * time.Millisecond):
			}
			off, err := mounted(filepath.Join(home, "media", "stick"))
			if err != nil {
				return err
			}
			time.Sleep(time.Duration(times.Load()%5) * time.Millisecond)
			if err := off(); err != nil {
				return err
			}
		}
	})
	if !user {
		if n := times.Load(); n < 25 {
			t.Errorf("only %d mounts were made meanwhile", n)
		}
		return
	}
	b := newBench(t)
	b.write("old", "old\n")
	for i := range treetest.Budget(t, 6, 12) {
		name := "s" + strconv.Itoa(i)
		b.new(name)
		b.in(name, "echo 1 > new; rm old")
		b.expect(name, "", "", "A new", "D old")
		if _, err := b.Snapshot(t.Context(), name, "state"); err != nil {
			t.Fatal(err)
		}
		fork := "f" + strconv.Itoa(i)
		if _, err := b.Fork(t.Context(), name, "", fork); err != nil {
			t.Fatal(err)
		}
		if got := b.in(fork, "cat new; echo 2 > new"); got != "1\n" {
			t.Errorf("the fork has %q", got)
		}
		b.expect(fork, "", "", "A new", "D old")
		if got := b.told(compare.Ref{Sandbox: name}, compare.Ref{Sandbox: fork}); got == "" {
			t.Error("two sandboxes that differ compare equal")
		}
		for _, n := range []string{name, fork} {
			if err := b.Remove(t.Context(), n); err != nil {
				t.Error(err)
			}
		}
		s, out, _ := b.sh("cat old; echo 3 > old")
		c, err := s.Engine.Compare.Changes(t.Context(), s.Record)
		if err != nil {
			t.Fatal(err)
		}
		if n := c.Len(); out != "old\n" || n != 1 {
			t.Errorf("a run saw %q and changed %d places", out, n)
		}
		c.Close()
		if err := s.Discard(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A turn is taken by making a file of its name.
func take(dir, turn string) error { return os.WriteFile(filepath.Join(dir, turn), nil, 0o644) }

func taken(dir, turn string, done <-chan struct{}) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, turn)); err == nil {
			return true
		}
		select {
		case <-done:
			return false
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// mountsInTurn mounts each of dirs, beneath the home, when the user has taken the
// turn of its number, and the next turn says that it is done; after the last it
// unmounts them all.
func mountsInTurn(dirs ...string) func(home string, done <-chan struct{}) error {
	return func(home string, done <-chan struct{}) (err error) {
		var offs []func() error
		all := func() {
			for _, off := range slices.Backward(offs) {
				err = errors.Join(err, off())
			}
			offs = nil
		}
		defer all()
		for i := range len(dirs) + 1 {
			if !taken(home, "user"+strconv.Itoa(i), done) {
				return nil
			}
			if i == len(dirs) {
				all()
			} else {
				off, merr := mounted(glob(home, dirs[i]))
				if merr != nil {
					return merr
				}
				offs = append(offs, off)
			}
			if terr := take(home, "root"+strconv.Itoa(i)); terr != nil {
				return terr
			}
		}
		return err
	}
}

// glob is the one path that a pattern beneath a directory stands for, or, where
// it stands for none, itself.
func glob(dir, pattern string) string {
	found, _ := filepath.Glob(filepath.Join(dir, filepath.Dir(pattern)))
	if len(found) != 1 {
		return filepath.Join(dir, pattern)
	}
	return filepath.Join(found[0], filepath.Base(pattern))
}

// turnOfRoot lets root have its turn.
func (b *bench) turnOfRoot(n int) {
	b.t.Helper()
	home, no := os.Getenv("HOME"), strconv.Itoa(n)
	if err := take(home, "user"+no); err != nil {
		b.t.Fatal(err)
	}
	b.soon("root has mounted", func() bool { return taken(home, "root"+no, closedChannel()) })
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestAMountThatStaysInATreeIsToldAndLivedWith(t *testing.T) {
	if !withMounter(t, mountsInTurn("media/stick", "snapfs-engine-*/work/inside")) {
		return
	}
	b := newBench(t)
	home := os.Getenv("HOME")
	b.write("a", "real\n")
	for _, dir := range []string{"media/stick", "other", "snapfs-x"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.new("one")
	b.in("one", "echo 1 > a; mkdir d; echo 2 > d/b; echo 3 > "+home+"/top; echo 4 > "+home+"/other/c")
	want := b.changed("one", "", "")
	if len(want) != 5 {
		t.Fatalf("changed: %q", want)
	}
	slices.Sort(want)

	b.turnOfRoot(0)
	again, said := b.reopen()
	b.Engine = again
	got := b.changed("one", "", "")
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("with a mount in the home the changes are %q, want %q", got, want)
	}
	if out := b.in("one", "cat a d/b; echo 5 > e; touch "+home+"/no 2>&1 || true"); !strings.HasPrefix(out, "1\n2\n") || !strings.Contains(out, "Read-only") {
		t.Errorf("inside: %q", out)
	}
	if text := strings.Join(*said, "\n"); !strings.Contains(text, filepath.Join(home, "media/stick")+" was mounted") {
		t.Errorf("it is not told which mount is in the way: %q", text)
	}
	want = append(want, "A e")
	slices.Sort(want)
	if got = b.changed("one", "", ""); !sameSorted(got, want) {
		t.Errorf("after one more command the changes are %q, want %q", got, want)
	}

	b.turnOfRoot(1)
	inside := filepath.Join(b.workspace, "inside")
	_, err := b.Supervise.Exec(t.Context(), "one", b.command("true"))
	b.names(err, inside)
	if c, err := b.Compare.Diff(t.Context(), "one", "", ""); err == nil {
		c.Close()
		t.Error("the workspace has a mount in it, and is compared all the same")
	} else {
		b.names(err, inside)
	}

	b.turnOfRoot(2)
	if got = b.changed("one", "", ""); !sameSorted(got, want) {
		t.Errorf("when nothing is mounted any more the changes are %q, want %q", got, want)
	}
	if out := b.in("one", "cat a d/b e "+home+"/top "+home+"/other/c"); out != "1\n2\n5\n3\n4\n" {
		t.Errorf("when nothing is mounted any more the sandbox has %q", out)
	}
}

func sameSorted(got, want []string) bool {
	slices.Sort(got)
	return slices.Equal(got, want)
}

// names checks that an error says which mount is in the way, and what mends it.
func (b *bench) names(err error, mount string) {
	b.t.Helper()
	kind := errors.Is(err, errs.ErrBusy) || errors.Is(err, errs.ErrNotSupported)
	if !kind || !strings.Contains(err.Error(), mount) || !slices.Contains(errs.HintsOf(err), "sudo umount "+mount) {
		b.t.Errorf("the error does not name %s: %v, hints %q", mount, err, errs.HintsOf(err))
	}
}
