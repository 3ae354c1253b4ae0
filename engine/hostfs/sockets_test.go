package hostfs

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// Of each directory that a sandbox shows as it is on the host, the kernel makes an overlay, or the directories with
// sockets in it get one each, or the sockets are hidden.
func TestSocketsInShownDirectoriesAreKeptAway(t *testing.T) {
	dir := t.TempDir()
	plain, odd, large := filepath.Join(dir, "plain"), filepath.Join(dir, "odd"), filepath.Join(dir, "large")
	for _, d := range []string{plain, odd + "/sub", odd + "/tree", large + "/deep/er"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []string{plain + "/s", odd + "/s", odd + "/sub/s", odd + "/tree/s", large + "/s", large + "/deep/er/s"} {
		l, err := net.Listen("unix", s)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for _, pipe := range []string{odd + "/pipe", odd + "/tree/pipe", large + "/deep/pipe"} {
		if err := syscall.Mkfifo(pipe, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	env := &Environment{mounts: []mount.Point{
		{Path: "/", Type: "ext4"},
		{Path: odd, Type: "strangefs"},
		{Path: odd + "/sub", Type: "ext4"},
		{Path: large + "/below", Type: "ext4"},
	}}
	as := func(path string) isolate.Mount { return isolate.Mount{Target: path, Source: path, ReadOnly: true} }
	mounts, hide := withoutSockets([]isolate.Mount{
		{Target: "/", Overlay: &isolate.Overlay{}}, as(plain), as(odd), as(large), {Target: odd + "/tree", Source: "/copy"},
	}, env)
	got := map[string]bool{}
	for _, m := range mounts {
		got[m.Target] = m.NoSockets
	}
	want := map[string]bool{"/": false, plain: true, odd: false, odd + "/sub": true, odd + "/tree": false, large: true}
	hidden := []string{odd + "/s", odd + "/pipe"}
	if !Privileged() { // something is mounted below it
		want[large], want[large+"/deep/er"], want[large+"/deep"] = false, true, true
		hidden = append(hidden, large+"/s")
	}
	slices.Sort(hide)
	slices.Sort(hidden)
	if fmt.Sprint(got) != fmt.Sprint(want) || !slices.Equal(hide, hidden) {
		t.Errorf("got %v and hidden %v, want %v and %v", got, hide, want, hidden)
	}
}

// A small directory of another user with a mount in it is a frame, so that the rest of it can be overlays, and what
// belongs to this user in it is a tree. A large directory is shown as it is.
func TestSmallDirectoriesWithMountsAreFrames(t *testing.T) {
	const variable = "SNAPFS_TEST_FRAMES"
	dir := os.Getenv(variable)
	if dir == "" {
		treetest.NeedRoot(t)
		a := treetest.User(t)
		dir = filepath.Join(a.Home, "top")
		for i := range 20 {
			if err := os.MkdirAll(filepath.Join(dir, "large", fmt.Sprint(i)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []string{"small/a", "small/b/m", "small/b/c", "small/b/own"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(filepath.Join(dir, "small/b/own"), a.UID, a.GID); err != nil {
			t.Fatal(err)
		}
		treetest.RunAs(t, a, t.Name(), treetest.WithEnv(variable+"="+dir))
		return
	}
	s := surveyor{mounts: []mount.Point{{Path: "/", Type: "ext4"}, {Path: dir + "/large/3", Type: "ext4"}, {Path: dir + "/small/b/m", Type: "ext4"}}}
	if err := s.show(dir); err != nil {
		t.Fatal(err)
	}
	for what, paths := range map[string][2][]string{
		"shown":  {s.env.Shown, {"large", "small/a", "small/b/c", "small/b/m"}},
		"frames": {s.env.Frames, {".", "small", "small/b"}},
		"trees":  {s.env.Trees, {"small/b/own"}},
	} {
		var got []string
		for _, p := range paths[0] {
			rel, _ := filepath.Rel(dir, p) // both are absolute
			got = append(got, rel)
		}
		if slices.Sort(got); !slices.Equal(got, paths[1]) {
			t.Errorf("%s %q, want %q", what, got, paths[1])
		}
	}
}
