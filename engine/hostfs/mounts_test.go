package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
)

// What a sandbox writes in memory is bounded by its limits of disk and memory, with room for what snapfs writes there.
func TestLimitsBoundMemoryFilesystems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits catalog.Limits
		want   []string
	}{
		{catalog.Limits{PIDs: 10}, nil},
		{catalog.Limits{Memory: 1 << 30}, []string{"size=1073741824"}},
		{catalog.Limits{Memory: 1 << 30, Disk: 5 << 30}, []string{"size=1073741824"}},
		{catalog.Limits{Memory: 9 << 30, Disk: 5 << 30}, []string{"size=5368709120"}},
		{catalog.Limits{Disk: 5 << 30}, []string{"size=5368709120"}},
		{catalog.Limits{Disk: 1, Inodes: 10}, []string{"size=1048576", "nr_inodes=266"}},
	} {
		if got := Confinement(catalog.Policy{Limits: c.limits}, "/").TmpLimits; !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.limits, got, c.want)
		}
	}
}

func TestHiddenMountsAreNotSeen(t *testing.T) {
	mounts := []mount.Point{
		{ID: 2, Parent: 1, Path: "/proc", Type: "proc"}, // made before the root it is on
		{ID: 1, Parent: 0, Path: "/", Type: "ext4"},
		{ID: 3, Parent: 1, Path: "/data", Type: "ext4"},
		{ID: 4, Parent: 3, Path: "/data", Type: "btrfs"},
		{ID: 5, Parent: 3, Path: "/data/under", Type: "ext4"},
		{ID: 6, Parent: 4, Path: "/data/over", Type: "ext4"},
		{ID: 7, Parent: 1, Path: "/a/b", Type: "ext4"},
		{ID: 8, Parent: 1, Path: "/a", Type: "ext4"},
		{ID: 9, Parent: 7, Path: "/a/b/c", Type: "ext4"},
	}
	var seen []int
	for _, m := range visible(mounts) {
		seen = append(seen, m.ID)
	}
	if want := []int{2, 1, 4, 6, 8}; !slices.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
}

func TestEveryRealFilesystemIsATreeForRoot(t *testing.T) {
	s := surveyor{state: "/var/lib/snapfs", mounts: []mount.Point{
		{ID: 1, Path: "/", Type: "ext4", Options: "rw,relatime"},
		{ID: 2, Parent: 1, Path: "/proc", Type: "proc", Options: "rw"},
		{ID: 3, Parent: 1, Path: "/home", Type: "btrfs", Options: "rw"},
		{ID: 4, Parent: 1, Path: "/srv", Type: "nfs4", Options: "rw"},
		{ID: 5, Parent: 1, Path: "/boot", Type: "ext4", Options: "ro,noatime"},
		{ID: 6, Parent: 1, Path: "/opt", Type: "vfat", Options: "rw"},
		{ID: 7, Parent: 1, Path: "/var/lib/snapfs/pools/p/mnt", Type: "btrfs", Options: "rw"},
		{ID: 8, Parent: 1, Path: "/tmp", Type: "tmpfs", Options: "rw"},
		{ID: 9, Parent: 1, Path: "/var/lib/docker/overlay2/c/merged", Type: "overlay", Options: "rw"},
	}}
	if err := s.whole(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/", "/home"}; !slices.Equal(s.env.Trees, want) {
		t.Errorf("trees %v, want %v", s.env.Trees, want)
	}
	if want := []string{"/boot", "/opt"}; !slices.Equal(s.env.Shown, want) {
		t.Errorf("shown %v, want %v", s.env.Shown, want)
	}
	if want := []string{"/srv", "/var/lib/docker/overlay2/c/merged"}; !slices.Equal(s.env.Omitted, want) {
		t.Errorf("left out %v, want %v", s.env.Omitted, want)
	}
	if err := s.workspace("/tmp/work"); err != nil || !slices.Contains(s.env.Trees, "/tmp/work") {
		t.Errorf("a workspace under a replaced directory is no tree: %v, %v", s.env.Trees, err)
	}
	if got := s.env.treeOf("/home/me/x"); got != "/home" {
		t.Errorf("/home/me/x is in %q", got)
	}
}

func TestATreeOfAnOrdinaryUserHasNoMountsBelow(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"plain/sub", "split/mounted", "split/other"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("plain", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	s := surveyor{mounts: []mount.Point{
		{ID: 1, Path: "/", Type: "ext4", Options: "rw"},
		{ID: 2, Parent: 1, Path: filepath.Join(root, "split/mounted"), Type: "ext4", Options: "rw"},
	}}
	if err := s.split(root); err != nil {
		t.Fatal(err)
	}
	slices.Sort(s.env.Trees)
	want := []string{filepath.Join(root, "plain"), filepath.Join(root, "split/mounted"), filepath.Join(root, "split/other")}
	if underReplaced(root) { // a temporary directory that sandboxes replace is nobody's tree
		want = nil
	}
	if !slices.Equal(s.env.Trees, want) {
		t.Errorf("trees %v, want %v", s.env.Trees, want)
	}
	if want := []string{root, filepath.Join(root, "split")}; !underReplaced(root) && !slices.Equal(s.env.Frames, want) {
		t.Errorf("frames %v, want %v", s.env.Frames, want)
	}
}

func TestSecretsAreHiddenButNotTheWorkspace(t *testing.T) {
	home := t.TempDir()
	for _, d := range []string{".aws/sub/ws", ".aws/sub/other", ".aws/sub/ws/src", ".ssh", ".config/gh", ".kube", "real"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(home, name) }
	for link, to := range map[string]string{".aws/credentials": "real", ".aws/latest": ".aws/sub/ws", ".aws/up": ".aws", ".aws/src": ".aws/sub/ws/src", ".aws/home": "."} {
		if err := os.Symlink(in(to), in(link)); err != nil {
			t.Fatal(err)
		}
	}
	list := mustHide(t, hiding{real: findSecrets(home, asItIs), own: []string{"/state"}, expose: []string{in(".kube/config")}}, home, in(".aws/sub/ws"))
	for _, p := range []string{in(".aws"), in(".aws/sub"), in(".aws/sub/ws"), in(".aws/sub/ws/src"), home, in(".kube"), in(".kube/config"), in(".netrc"), in(".config/gcloud")} {
		if slices.Contains(list, p) {
			t.Errorf("%s is hidden", p)
		}
	}
	for _, p := range []string{in(".ssh"), in(".config/gh"), in(".aws/credentials"), in("real"), in(".aws/latest"), in(".aws/up"), in(".aws/sub/other"), "/state"} {
		if !slices.Contains(list, p) {
			t.Errorf("%s is not hidden", p)
		}
	}
	machine := hiding{real: SecretPaths{machine: []string{home}}} // a place that is somebody's home directory
	if list := mustHide(t, machine, in(".kube"), in(".aws")); slices.ContainsFunc(list, func(p string) bool { return Within(p, home) }) {
		t.Errorf("what lies beside the workspace in a home directory is hidden: %q", list)
	}
}

// A directory that holds the workspace and secrets beside it, and that cannot be listed, is not shown whole.
func TestWhatCannotBeListedBesideTheWorkspaceIsNotShown(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	home := realDir(t)
	if err := errors.Join(os.MkdirAll(filepath.Join(home, ".aws/sub/ws"), 0o755), os.Chmod(filepath.Join(home, ".aws/sub"), 0o311)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(home, ".aws/sub"), 0o755) })
	list, err := hidden(hiding{real: findSecrets(home, asItIs)}, home, filepath.Join(home, ".aws/sub/ws"))
	if !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), "/.aws/sub") {
		t.Errorf("%q, %v", list, err)
	}
}

// A kept sandbox of an ordinary user has trees beneath a directory in which
// something was mounted when it was made, and is not any more.
func TestATreeHasAFrameAfterTheMountBesideItIsGone(t *testing.T) {
	env := &Environment{Frames: []string{"/"}, Trees: []string{"/etc", "/var"}}
	trees := []catalog.Tree{{Path: "/etc"}, {Path: "/var/lib"}, {Path: "/var/tmp/a/b"}, {Path: "/var/tmp/a/b/c/d"}}
	got := frames(env, trees)
	slices.Sort(got)
	if want := []string{"/", "/var", "/var/tmp", "/var/tmp/a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := frames(&Environment{}, []catalog.Tree{{Path: "/"}, {Path: "/home"}}); len(got) != 0 {
		t.Errorf("what lies in a tree needs no frame: %q", got)
	}
}

// A tree is never left out because its filesystem has become read-only, or is not mounted any more.
func TestNoTreeIsLeftOutSilently(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ws, gone := filepath.Join(dir, "ws"), filepath.Join(dir, "gone")
	rec := &catalog.Record{Name: "s", Workspace: ws, Trees: []catalog.Tree{{Path: "/"}, {Path: dir, Mounted: true}}}
	for p, want := range map[string]bool{dir: true, ws: true, "/": true, "/boot": false, filepath.Join(ws, "sub"): false} {
		if hides(rec, p) != want {
			t.Errorf("%s, read-only now, hides a tree: %t, want %t", p, !want, want)
		}
	}
	rec.BareWorkspace = true
	if hides(rec, ws) {
		t.Error("a workspace that was read-only from the beginning has no tree")
	}
	there, away := &Environment{mounts: []mount.Point{{Path: dir}}}, &Environment{}
	if note, err := checkMounted(rec, rec.Trees[1], there); note != "" || err != nil {
		t.Errorf("a mounted tree: %q, %v", note, err)
	}
	if _, err := checkMounted(rec, rec.Trees[1], away); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("the workspace's filesystem is away: %v", err)
	}
	for other, noted := range map[catalog.Tree]bool{{Path: gone, Mounted: true}: false, {Path: t.TempDir(), Mounted: true}: true} {
		if note, err := checkMounted(rec, other, away); (note != "") != noted || err != nil {
			t.Errorf("another tree is away: %q, %v", note, err)
		}
	}
	ro := &Environment{Trees: []string{"/", "/ro/work"}, Shown: []string{"/ro"}}
	if !ro.Shows("/ro/x") || ro.Shows("/ro/work/x") || ro.Shows("/x") {
		t.Error("what is shown read-only is not known")
	}
}
