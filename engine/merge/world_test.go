package merge_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A world has the three trees, and a copy of the real one as the target of the result.
type world struct {
	t                        testing.TB
	top                      string
	base, mine, real, target string
	// loose: hard links that no change mentions may be lost.
	loose bool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	top := treetest.Dir(t)
	w := &world{
		t: t, top: top, base: filepath.Join(top, "base"), mine: filepath.Join(top, "mine"),
		real: filepath.Join(top, "real"), target: filepath.Join(top, "target"),
	}
	for _, dir := range []string{w.base, w.mine, w.real, w.target} {
		must(t, os.Mkdir(dir, 0o755))
	}
	return w
}

// input compares the trees.
func (w *world) input() merge.Input {
	w.t.Helper()
	base := treetest.Open(w.t, w.base)
	scratch := filepath.Join(w.top, "scratch")
	must(w.t, os.RemoveAll(scratch), os.Mkdir(scratch, 0o700))
	in := merge.Input{
		MineTree: treetest.Open(w.t, w.mine), RealTree: treetest.Open(w.t, w.real), BaseTree: base,
		Scratch: scratch, MineName: names.Mine, RealName: names.Real,
		OpenBase: func(path string) (*os.File, error) { return os.Open(filepath.Join(w.base, path)) },
	}
	in.Mine, in.Real = w.differences(w.base, w.mine), w.differences(w.base, w.real)
	return in
}

func (w *world) differences(old, new string) []diff.Change {
	w.t.Helper()
	changes, err := diff.Trees(w.t.Context(), treetest.Open(w.t, old), treetest.Open(w.t, new), diff.Options{})
	must(w.t, err)
	return changes
}

func (w *world) trees(in merge.Input) *merge.Result {
	w.t.Helper()
	r, err := merge.Trees(w.t.Context(), in)
	must(w.t, err)
	return r
}

// apply applies a result to the target, as a promotion would, and fails the test if the
// target then differs from the result.
func (w *world) apply(in merge.Input, r *merge.Result) {
	w.t.Helper()
	target := treetest.Open(w.t, w.target)
	taken := time.Now().Add(-time.Hour)
	from := promote.Source{Tree: in.MineTree, Built: treetest.Open(w.t, in.Scratch), In: r.Built, From: r.From}
	_, err := promote.Apply(w.t.Context(), promote.Target{Root: target, Path: w.target, StateDir: filepath.Join(w.top, "state")}, from, r.Changes,
		promote.Options{
			Base:  promote.Base{Taken: taken, Frozen: true, Root: in.RealTree},
			Allow: approval.Allow{SetID: true, Devices: true, Capabilities: true, Paths: []string{"."}},
		})
	must(w.t, err)
	made, planned := w.differences(w.real, w.target), slices.Clone(r.Changes)
	if w.loose {
		only := func(c diff.Change) bool { return c.What == diff.Links }
		made, planned = slices.DeleteFunc(made, only), slices.DeleteFunc(planned, only)
	}
	if got, want := brief(made), brief(planned); got != want {
		w.t.Errorf("the target has been changed:\n%s\nthe result says:\n%s", got, want)
	}
	for path := range r.Built {
		if _, err := os.Lstat(filepath.Join(in.Scratch, path)); err != nil {
			w.t.Errorf("built: %v", err)
		}
	}
}

// brief prints a line for each change, except sockets, which cannot be promoted, and times
// of directories, which a promotion changes when it exchanges a file.
func brief(changes []diff.Change) string {
	var b strings.Builder
	for _, c := range changes {
		if c.Kind == diff.Modified && c.New.Mode.IsDir() {
			if c.What &^= diff.Time; c.What == 0 {
				continue
			}
		}
		if c.New == nil || c.New.Mode&fs.ModeSocket == 0 {
			fmt.Fprintf(&b, "%s %q %s\n", c.Kind.Letter(), c.Path, c.What)
		}
	}
	return b.String()
}

func conflictLines(conflicts []merge.Conflict) string {
	var b strings.Builder
	for _, c := range conflicts {
		fmt.Fprintf(&b, "%s %s: %s\n", c.Kind, c.Path, c.Why)
		if c.Kind == merge.Content && !c.Marked {
			b.WriteString("\tnot told by marks\n")
		}
		if len(c.Also) > 0 {
			fmt.Fprintf(&b, "\talso %s\n", strings.Join(c.Also, ", "))
		}
	}
	return b.String()
}

// began is the modification time of everything in the base.
var began = time.Unix(1_600_000_000, 0)

// A line of a script creates or changes a path:
//
//	PATH [WORD…]
//
// followed by the content, if any. The words are:
//
//	dir, fifo, socket, chr=MAJOR:MINOR   the type, if not a regular file
//	-> TARGET                a symbolic link
//	link=PATH                a hard link of PATH
//	from=PATH                renamed from PATH
//	delete                   delete the path and everything below it
//	replace                  delete the old node first
//	mode=OCTAL owner=UID:GID time=SECONDS +NAME=VALUE -NAME
//	quoted, times=N          the content is a Go string; repeat it N times
type step struct {
	path    string
	words   []string
	content string
}

func parseStep(name, data string) step {
	words := strings.Fields(name)
	return step{words[0], words[1:], data}
}

// play applies one step to a tree. later is the time of new content in seconds.
func (s step) play(root string, later int) error {
	at := filepath.Join(root, s.path)
	write := s.content != ""
	content := s.content
	for i, w := range s.words {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch {
		case key == "delete":
			return os.RemoveAll(at)
		case key == "replace":
			err = os.RemoveAll(at)
			write = true
		case key == "empty":
			write = true
		case key == "dir":
			err = os.MkdirAll(at, 0o755)
		case key == "fifo":
			err = unix.Mkfifo(at, 0o644)
		case key == "socket":
			err = unix.Mknod(at, unix.S_IFSOCK|0o644, 0)
		case key == "chr":
			var major, minor uint32
			if _, err = fmt.Sscanf(value, "%d:%d", &major, &minor); err == nil {
				_ = os.Remove(at)
				err = unix.Mknod(at, unix.S_IFCHR|0o644, int(unix.Mkdev(major, minor)))
			}
		case key == "->":
			_ = os.Remove(at)
			err = os.Symlink(s.words[i+1], at)
		case key == "link":
			err = os.Link(filepath.Join(root, value), at)
		case key == "from":
			must2(os.MkdirAll(filepath.Dir(at), 0o755))
			err = os.Rename(filepath.Join(root, value), at)
		case key == "quoted":
			content, err = strconv.Unquote(strings.TrimSpace(content))
		case key == "times":
			n, _ := strconv.Atoi(value)
			content = strings.Repeat(content, n)
		}
		if err != nil {
			return err
		}
	}
	if write {
		must2(os.MkdirAll(filepath.Dir(at), 0o755))
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return s.metadata(at, write, later)
}

func must2(err error) {
	if err != nil {
		panic(err)
	}
}

func (s step) metadata(at string, stamp bool, later int) error {
	for _, w := range s.words {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.ParseUint(value, 8, 32)
		var err error
		switch {
		case key == "mode":
			err = unix.Chmod(at, uint32(n))
		case key == "owner":
			var uid, gid int
			if _, err = fmt.Sscanf(value, "%d:%d", &uid, &gid); err == nil {
				err = os.Lchown(at, uid, gid)
			}
		case key == "time":
			later, err = strconv.Atoi(value)
			stamp = true
		case key == "->":
			stamp = true
		case key[0] == '+':
			err = vfs.SetXattr(unix.AT_FDCWD, at, key[1:], []byte(value), 0)
		case key[0] == '-':
			err = vfs.RemoveXattr(unix.AT_FDCWD, at, key[1:])
		}
		if err != nil {
			return err
		}
	}
	if stamp {
		return setTime(at, began.Add(time.Duration(later)*time.Second))
	}
	return nil
}

func setTime(path string, when time.Time) error {
	ts := unix.NsecToTimespec(when.UnixNano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// play applies steps, and then restores the times of the directories in which they changed
// names, and those in keep.
func play(t testing.TB, root string, later int, steps []step, keep func(path string) bool) {
	t.Helper()
	for _, s := range steps {
		if err := s.play(root, later); err != nil {
			t.Fatalf("%s %v: %v", s.path, s.words, err)
		}
	}
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		timed := slices.ContainsFunc(steps, func(s step) bool {
			return s.path == rel && slices.ContainsFunc(s.words, func(w string) bool { return strings.HasPrefix(w, "time=") })
		})
		if err == nil && !timed && (e.IsDir() || keep(rel)) {
			return setTime(path, began)
		}
		return err
	}))
}

// list describes a tree, a line for each node, without default attributes.
func list(t testing.TB, root string) string {
	t.Helper()
	var b strings.Builder
	first := map[uint64]string{}
	var paths []string
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, path); rel != "." {
			paths = append(paths, rel)
		}
		return err
	}))
	slices.SortFunc(paths, diff.ComparePaths)
	for _, rel := range paths {
		path := filepath.Join(root, rel)
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		must(t, err)
		b.WriteString(rel)
		usual := uint32(0o644)
		switch {
		case st.IsDir():
			b.WriteString("/")
			usual = 0o755
		case st.IsSymlink():
			usual = 0o777
		}
		if mode := st.Mode & 0o7777; mode != usual {
			fmt.Fprintf(&b, " mode=%04o", mode)
		}
		if os.Geteuid() == 0 && st.UID+st.GID != 0 {
			fmt.Fprintf(&b, " owner=%d:%d", st.UID, st.GID)
		}
		attrs, err := vfs.Xattrs(unix.AT_FDCWD, path)
		must(t, err)
		var named []string
		for name, value := range attrs {
			named = append(named, fmt.Sprintf(" +%s=%s", name, value))
		}
		slices.Sort(named)
		b.WriteString(strings.Join(named, ""))
		if after := st.MTime.Time().Sub(began); !st.IsDir() && after != 0 {
			fmt.Fprintf(&b, " time=%s", after)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if st.Nlink > 1 && first[st.Ino] != "" {
				fmt.Fprintf(&b, " = %s", first[st.Ino])
				break
			}
			first[st.Ino] = rel
			data, err := os.ReadFile(path)
			must(t, err)
			if len(data) > 200 {
				data = append(append(data[:100:100], []byte(fmt.Sprintf("…%d…", len(data)))...), data[len(data)-20:]...)
			}
			fmt.Fprintf(&b, " %q", data)
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			must(t, err)
			fmt.Fprintf(&b, " -> %s", target)
		case unix.S_IFIFO:
			b.WriteString(" fifo")
		case unix.S_IFSOCK:
			b.WriteString(" socket")
		case unix.S_IFCHR:
			fmt.Fprintf(&b, " chr=%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		b.WriteString("\n")
	}
	return b.String()
}
