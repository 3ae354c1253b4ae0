package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// lateIn returns the paths that are hidden before they exist, relative to home.
func lateIn(home string, h hiding, workspace string) (paths []string) {
	h.real = findSecrets(home, asItIs)
	for _, m := range later(h, workspace) {
		for _, name := range m.names {
			if rest, err := filepath.Rel(home, filepath.Join(m.dir, name)); err == nil {
				paths = append(paths, rest)
			}
		}
	}
	return paths
}

// A place that does not exist is hidden at its first element that does not, through all links as they are now.
func TestWhatDoesNotExistIsHiddenWhereItWouldAppear(t *testing.T) {
	home := treetest.Dir(t) // below no directory that is replaced
	for _, dir := range []string{".docker", "dots/config", "shown", "w/.aws"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{".config": "dots/config", ".kube": "../" + filepath.Base(home) + "/dots/kube/now", ".cargo": "nowhere/cargo", ".netrc": ".netrc"} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, filepath.Join(home, ".gem")) // a file in place of a directory
	got := lateIn(home, hiding{also: []string{filepath.Join(home, "shown/not/yet"), filepath.Join(home, "shown")}}, filepath.Join(home, "w"))
	for path, want := range map[string]bool{
		".aws": true, ".docker/config.json": true, ".local": true, "dots/config/gh": true, "dots/kube": true, "nowhere": true, "shown/not": true,
		".docker": false, ".config": false, ".config/gh": false, ".kube": false, ".cargo": false, ".netrc": false, ".gem": false, "shown": false, "w": false, ".local/share": false,
	} {
		if slices.Contains(got, path) != want {
			t.Errorf("%s is hidden before it exists: %v, want %v", path, !want, want)
		}
	}
	got = lateIn(home, hiding{expose: []string{filepath.Join(home, ".aws/config"), filepath.Join(home, ".docker")}}, filepath.Join(home, ".local/w"))
	for _, path := range []string{".aws", ".docker/config.json", ".local"} {
		if slices.Contains(got, path) {
			t.Errorf("%s is hidden, but something in it or above it is to be shown", path)
		}
	}
	if !slices.Contains(got, ".ssh") {
		t.Error(".ssh is not hidden beside what is exposed")
	}
}

// Only a tree that shows the host's writes hides what comes later, each its own part and none through a mount.
func TestOnlyLiveTreesHideWhatComesLater(t *testing.T) {
	overlay := func() *isolate.Overlay {
		return &isolate.Overlay{Lower: []string{"/"}, Upper: "/var/l/u", Work: "/var/l/w"}
	}
	mounts := []isolate.Mount{
		{Target: "/", Overlay: overlay()},
		{Target: "/frozen", Overlay: overlay()},
		{Target: "/copy", Source: "/data/copy"},
		{Target: "/home", Overlay: overlay()},
		{Target: "/usr", Source: "/usr", ReadOnly: true, NoSockets: true},
	}
	points := []mount.Point{{Path: "/", Dev: 1}, {Path: "/home", Dev: 2}, {Path: "/home/nfs", Dev: 3}}
	dirs := []string{"/", "/frozen/a", "/copy/a", "/home", "/home/a", "/home/nfs/a", "/home/masked/a", "/usr/lib"}
	var missing []absentNames
	for _, dir := range dirs {
		missing = append(missing, absentNames{dir: dir, names: []string{".ssh"}})
	}
	hideLater(mounts, []catalog.Tree{{Path: "/"}, {Path: "/frozen", Frozen: true}}, missing, []string{"/home/masked"}, nil, points, newLookupCache())
	for i, want := range [][]string{{"."}, nil, nil, {".", "a"}, {"lib"}} {
		var got []string
		for _, h := range mounts[i].Hidden {
			got = append(got, h.Dir)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s hides entries of %q, want %q", mounts[i].Target, got, want)
		}
	}
}

// The tree that holds /home shows only the homes of its start. A masked one has a stand-in instead.
func TestNewHomesAreHidden(t *testing.T) {
	homes := treetest.Dir(t)
	for _, name := range []string{"ann", "bob"} {
		if err := os.Mkdir(filepath.Join(homes, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ann, bob, eve := filepath.Join(homes, "ann"), filepath.Join(homes, "bob"), filepath.Join(homes, "eve/x")
	for _, c := range []struct {
		show []string
		want []string
	}{
		{[]string{"/srv/w"}, []string{"ann", "bob"}},
		{[]string{ann + "/.ssh", bob}, []string{"ann", "bob"}},
		{[]string{eve, "/srv/w"}, nil},
		{[]string{homes}, nil},
		{[]string{"/"}, nil},
	} {
		if got := onlyDirs(homes, c.show); !slices.Equal(got, c.want) {
			t.Errorf("with %q shown, %q are excepted, want %q", c.show, got, c.want)
		}
	}
	missing := []absentNames{{dir: homes, only: []string{"ann", "bob"}}}
	mounts := []isolate.Mount{{Target: "/", Overlay: &isolate.Overlay{Lower: []string{"/"}, Upper: "/var/l/u", Work: "/var/l/w"}}}
	hideLater(mounts, []catalog.Tree{{Path: "/"}}, missing, []string{bob}, nil, []mount.Point{{Path: "/"}}, newLookupCache())
	h := mounts[0].Hidden
	if len(h) != 2 || !h[0].All || !slices.Equal(h[0].Except, []string{"ann"}) || len(h[1].StandIns) != 1 {
		t.Errorf("hidden are %+v", h)
	}
	mustWrite(t, filepath.Join(homes, "file"))
	if got := onlyDirs(homes, nil); got != nil {
		t.Errorf("beside a file %q are excepted, want none", got)
	}
}
