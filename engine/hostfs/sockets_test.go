package hostfs

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
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
	hidden := []string{odd + "/s"}
	if !Privileged() { // something is mounted below it
		want[large], want[large+"/deep/er"] = false, true
		hidden = append(hidden, large+"/s")
	}
	slices.Sort(hide)
	slices.Sort(hidden)
	if fmt.Sprint(got) != fmt.Sprint(want) || !slices.Equal(hide, hidden) {
		t.Errorf("got %v and hidden %v, want %v and %v", got, hide, want, hidden)
	}
}

// A small directory of another user with a mount in it is a frame, so that the rest of it can be overlays; a large
// one is shown as it is.
func TestSmallDirectoriesWithMountsAreFrames(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		if err := os.MkdirAll(filepath.Join(dir, "large", fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"small/a", "small/b/m", "small/b/c"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := surveyor{mounts: []mount.Point{{Path: "/", Type: "ext4"}, {Path: dir + "/large/3", Type: "ext4"}, {Path: dir + "/small/b/m", Type: "ext4"}}}
	s.show(dir)
	rel := func(paths []string) (list []string) {
		for _, p := range paths {
			r, _ := filepath.Rel(dir, p)
			list = append(list, r)
		}
		slices.Sort(list)
		return list
	}
	if shown, want := rel(s.env.Shown), []string{"large", "small/a", "small/b/c", "small/b/m"}; !slices.Equal(shown, want) {
		t.Errorf("shown %q, want %q", shown, want)
	}
	if frames, want := rel(s.env.Frames), []string{".", "small", "small/b"}; !slices.Equal(frames, want) {
		t.Errorf("frames %q, want %q", frames, want)
	}
}
