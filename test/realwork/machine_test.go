package realwork

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/catalog"
)

// A node is what is compared of a path. On the disk filesystems of Linux the
// change time moves with every write, chmod, chown, rename, link and setxattr,
// and no program can set it: where it, the inode and the rest stand still, the
// content did. In /etc, the workspace and the home of a work the content is
// read all the same.
type node struct {
	mode, uid, gid uint32
	dev, ino, rdev uint64
	links          uint64
	size           int64
	mtime, ctime   syscall.Timespec
	// content is the SHA-256 of a file that is read, a link's target, or, of
	// what others work in, the names there.
	content string
}

// A machine is what a manifest holds, by path.
type machine map[string]node

// The places that are compared beside the home directory. Of the root only the
// names are.
var places = []string{
	"/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/srv", "/usr", "/var",
}

// Of a home directory its names are compared, and all that is in these, which
// the works write to.
var homePlaces = []string{
	".bash_history", ".bashrc", ".cache", ".cargo", ".config", ".gitconfig", ".local", ".node_repl_history", ".npm", ".npmrc",
	".profile", ".psql_history", ".pyenv", ".python_history", ".rustup", ".sqlite_history", ".ssh", "go",
}

// busy is where other programs of a machine work while a test runs. A pattern is
// a directory and one of its names; the directory itself is then compared
// without its times.
func busy() []string {
	home, _ := os.UserHomeDir()
	list := []string{
		"/var/tmp/*",                  // scratch of other tests; a work's own is compared whole
		"/var/lib/snapfs",             // snapfs's own state
		home + "/" + catalog.Registry, // of state directories
		"/var/lib/systemd",            // timers note here when they ran
		"/var/log/journal",            // the log of all daemons
		"/var/log/*.log",              // of syslog; apt and dpkg have theirs below
		"/var/log/syslog*",            // of syslog
		"/var/log/messages",           // of syslog
		"/var/log/[bw]tmp",            // who logged in
		"/var/log/lastlog",            // useradd of other tests
		"/var/log/faillog",            // useradd of other tests
		"/home/*",                     // other people's
		home + "/.cache/go*",          // builds of other packages, and the linter
		home + "/go/pkg",              // the module cache of other builds
		home + "/.config/go",          // the counters of other builds
	}
	for _, name := range accountFiles {
		list = append(list, "/etc/"+name+"*") // useradd of other tests; compared without their users by accounts
	}
	return append(list, "/etc/.pwd.lock")
}

var accountFiles = []string{"passwd", "group", "shadow", "gshadow", "subuid", "subgid"}

// manifest reads the real machine, as far as this user may.
func manifest(t *testing.T) machine {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	r := reader{machine: machine{}, busy: map[string][]string{}, read: []string{"/etc"}}
	for _, pattern := range busy() {
		dir := filepath.Dir(pattern)
		r.busy[dir] = append(r.busy[dir], filepath.Base(pattern))
	}
	roots := slices.Clone(places)
	for _, name := range homePlaces {
		roots = append(roots, filepath.Join(home, name))
	}
	r.all(roots)
	r.machine["/ names"] = node{content: listing(t, "/")}
	r.machine[home+" names"] = node{content: listing(t, home)}
	for _, name := range accountFiles {
		r.machine["/etc/"+name+" accounts"] = node{content: accounts("/etc/" + name)}
	}
	r.machine["/var/log/dpkg.log"] = r.node("/var/log/dpkg.log")
	if len(r.machine) < 1000 || r.err != nil {
		t.Fatalf("a manifest of %d nodes: %v", len(r.machine), r.err)
	}
	return r.machine
}

// whole reads directories of the test's own, with all content.
func whole(t *testing.T, roots ...string) machine {
	t.Helper()
	r := reader{machine: machine{}, read: roots}
	r.all(roots)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.machine
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "snapfs-engine-") { // an ordinary user's tests of engine work in their home
			fmt.Fprintf(&b, "%q ", e.Name())
		}
	}
	return b.String()
}

// accounts is a file of /etc without the lines of users that tests make.
func accounts(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unreadable"
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "snapfs-test-") && !strings.HasPrefix(line, "sfs-") {
			b.WriteString(line)
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(b.String())))
}

// equal fails the test for each path that differs, with what does.
func (m machine) equal(t *testing.T, now machine) {
	t.Helper()
	for i, path := range m.differ(now) {
		if i == 30 {
			t.Fatal("... and more")
		}
		t.Errorf("the real %q changed:\n\twas %+v\n\tis  %+v", path, m[path], now[path])
	}
}

// differ lists the paths whose nodes are not the same. No node is the zero one.
func (m machine) differ(now machine) []string {
	paths := map[string]bool{}
	for _, pair := range [][2]machine{{m, now}, {now, m}} {
		for path, n := range pair[0] {
			if pair[1][path] != n {
				paths[path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// TestAManifestNoticesEveryChange: the proof is worth what the manifest sees.
func TestAManifestNoticesEveryChange(t *testing.T) {
	for what, change := range map[string]string{
		"content, with its size and time kept": "cp -p file old; printf z | dd of=file bs=1 conv=notrunc status=none; touch -r old file; rm old; touch -d @5 .",
		"mode":                                 "chmod 600 file",
		"time":                                 "touch -d @7 file",
		"link":                                 "ln file link",
		"new":                                  "touch -r . keep; touch new; touch -r keep .; rm keep",
		"gone":                                 "rm file",
		"renamed":                              "mv file name",
		"replaced":                             "cp -p file copy; mv copy file",
		"attribute":                            "python3 -c 'import os; os.setxattr(\"file\", \"user.a\", b\"b\")'",
	} {
		b := newBench(t)
		b.outside("echo xyz >file; touch -d @5 file .")
		sees := func() machine { // not the contents: of most of the machine they are not read either
			r := reader{machine: machine{}}
			r.all([]string{b.space})
			return r.machine
		}
		before := sees()
		if d := before.differ(sees()); len(d) != 0 {
			t.Errorf("nothing changed, and it sees %q", d)
		}
		b.outside(change)
		if len(before.differ(sees())) == 0 {
			t.Errorf("it does not see: %s", what)
		}
	}
}

// A reader fills a manifest with several goroutines.
type reader struct {
	mu      sync.Mutex
	machine machine
	busy    map[string][]string // names to leave out, by directory
	read    []string            // beneath these, content is read
	err     error
}

func (r *reader) all(roots []string) {
	var all sync.WaitGroup
	for _, root := range roots {
		all.Go(func() {
			mine := machine{}
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { return r.visit(mine, path, d, err) })
			r.mu.Lock()
			defer r.mu.Unlock()
			maps.Copy(r.machine, mine)
			r.err = errors.Join(r.err, err)
		})
	}
	all.Wait()
}

func (r *reader) visit(into machine, path string, d fs.DirEntry, err error) error {
	if err != nil { // what is not there, or closed to this user, is recorded as that
		return nil //nolint:nilerr // the node of a closed directory is there; an absent one has none, before and after
	}
	for _, pattern := range r.busy[filepath.Dir(path)] {
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			return skip(d)
		}
	}
	n := r.node(path)
	if n.mode == 0 && d.IsDir() {
		return fs.SkipDir
	}
	if _, ok := r.busy[path]; ok {
		n.size, n.links, n.mtime, n.ctime = 0, 0, syscall.Timespec{}, syscall.Timespec{}
	}
	into[path] = n
	return nil
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// node of a path that is not there is the zero value.
func (r *reader) node(path string) node {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return node{}
	}
	n := node{
		mode: st.Mode, uid: st.Uid, gid: st.Gid, dev: st.Dev, ino: st.Ino, rdev: st.Rdev, size: st.Size,
		links: uint64(st.Nlink), //nolint:unconvert // it has 32 bits on arm64
		mtime: syscall.Timespec(st.Mtim), ctime: syscall.Timespec(st.Ctim),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		n.content, _ = os.Readlink(path)
	case unix.S_IFREG:
		if slices.ContainsFunc(r.read, func(root string) bool { return strings.HasPrefix(path, root+"/") }) {
			n.content = sum(path)
		}
	}
	return n
}

func sum(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unreadable"
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
