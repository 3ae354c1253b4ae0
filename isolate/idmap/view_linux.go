package idmap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/spare"
	"golang.org/x/sys/unix"
)

// A View shows a directory of a running sandbox on the host, with the ids that the host would see without the
// sandbox's own range. No symbolic link in it leads out: the host would follow one that a sandbox has made to its own
// files; no program runs from it, whatever its mode says; and a [Checker] decides what the host reads of some files. The
// processes of the sandbox write to the same directory at the same time, so the kernel
// caches no names and attributes, and checks the content of a file when it is opened.
//
// The directory can be replaced by another while the view is mounted, see [View.Leave].
type View struct {
	s *server
	f *fuse.Server
}

// MountView mounts at the existing directory at a view of the directory tree, with ids lower by base; base 0
// changes no id. With readOnly, writes fail with EROFS. checker decides what is read of some files; nil changes
// none. Root mounts it by itself, another user by fusermount3. Only this user can use the mount. After an error
// nothing is mounted.
func MountView(at string, tree *os.File, base uint32, readOnly bool, checker Checker) (*View, error) {
	t, err := newTable(tree)
	if err != nil {
		return nil, fmt.Errorf("opening the tree: %w", err)
	}
	m, err := newCreators()
	if err != nil {
		return nil, fmt.Errorf("starting threads: %w", err)
	}
	t.gate = &gate{}
	s := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), t: t, ids: lowerBy(base), creators: m, handles: &handles{open: map[int]bool{}}, at: at, checker: checker}
	options := mountOptions()
	options.FsName, options.Name, options.DirectMountStrict = "snapfs", "snapfs-view", os.Geteuid() == 0
	options.Options = []string{"default_permissions", "nosuid", "nodev", "noexec"}
	if readOnly {
		options.Options = append(options.Options, "ro")
	}
	if os.Geteuid() == 0 {
		options.DirectMountFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		if readOnly {
			options.DirectMountFlags |= unix.MS_RDONLY
		}
		options.Options = options.Options[:1]
	}
	v := &View{s: s}
	spare.Loop(func() { v.f, err = fuse.NewServer(s, at, options) })
	if err != nil {
		return nil, fmt.Errorf("mounting: %w", err)
	}
	go v.f.Serve()
	return v, v.f.WaitMount()
}

// Wait returns when the view, a sandbox's directory shown on the host, is unmounted, by [MountView]'s caller
// or by anybody else.
func (v *View) Wait() { v.f.Wait() }

// leaveTime is how long [View.Leave] waits for FUSE requests that have begun. After it, Leave closes the
// files that they use.
const leaveTime = time.Second

// Leave closes every descriptor of the shown directory, so that its filesystem can be unmounted. The view
// stays mounted, and requests wait until Enter. Files that processes have open are empty from then on.
func (v *View) Leave() {
	v.s.t.gate.close(leaveTime)
	v.s.handles.clear()
	v.s.t.clear()
}

// Enter shows the directory tree in place of the one that [View.Leave] left, with ids lower by base. After an
// error the view is without a directory, and requests go on waiting.
func (v *View) Enter(tree *os.File, base uint32) error {
	if err := v.s.t.reset(tree); err != nil {
		return fmt.Errorf("opening the tree: %w", err)
	}
	v.s.ids = lowerBy(base)
	v.s.t.gate.open()
	return nil
}

// confine returns the target of a symbolic link, the inode behind fd, for the kernel of the host to follow. EACCES: the
// link leads out of the directory.
//
// The kernel follows a target from the name by which it found the link. A process in the directory can give a link a
// second name at another depth, or move it meanwhile, so nobody knows here how far up a ".." leads. No target that
// confine returns has one: it is a path down from the link, or an absolute path down from the mount, made of an absolute
// path of the directory or of the place of one of the link's names. The kernel walks both through the view, which
// confines the links on the way too, and counts them (ELOOP). A moved link can lead to another file of the directory.
// As in an absolute path, a ".." after a name takes that name away, also if it is a link to a directory elsewhere.
func (s *server) confine(fd int, target []byte) ([]byte, error) {
	to := string(target)
	if !filepath.IsAbs(to) && !slices.Contains(strings.Split(to, "/"), "..") {
		return target, nil
	}
	root, err := os.Readlink(procPath(int(s.t.root.Fd())))
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(to) {
		link, err := os.Readlink(procPath(fd))
		if err != nil {
			return nil, err
		}
		if _, ok := restIn(link, root); !ok {
			return nil, unix.EACCES
		}
		to = filepath.Join(filepath.Dir(link), to)
	}
	rest, ok := restIn(filepath.Clean(to), root)
	if !ok {
		return nil, unix.EACCES
	}
	if to = s.at + rest; len(to) >= unix.PathMax {
		return nil, unix.ENAMETOOLONG
	}
	return []byte(to), nil
}

// restIn returns the rest of path inside of the directory dir, with its first slash, for paths that must stay
// in a view; false if path is elsewhere.
func restIn(path, dir string) (rest string, ok bool) {
	if dir == "/" {
		dir = ""
	}
	rest, ok = strings.CutPrefix(path, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// A gate makes FUSE requests to a [View], a sandbox's directory shown on the host, wait while the view has no
// directory, between [View.Leave] and [View.Enter].
type gate struct {
	mu     sync.Mutex
	shut   chan struct{} // closed by open; nil while the gate is open
	inside int
	empty  chan struct{} // closed when inside is 0, if somebody waits for that
}

// enter waits, at most 10 seconds, until the gate is open, so that the view has a directory to answer a FUSE
// request from; after that the request fails because its inode is gone. enter counts the request that calls
// it as inside.
func (g *gate) enter() {
	const staleTime = 10 * time.Second
	g.mu.Lock()
	if shut := g.shut; shut != nil {
		g.mu.Unlock()
		select {
		case <-shut:
		case <-time.After(staleTime): // the request finds that its inode is gone
		}
		g.mu.Lock()
	}
	g.inside++
	g.mu.Unlock()
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// close closes the gate to new FUSE requests, before the view leaves its directory. It waits until no request
// is inside, at most for patience.
func (g *gate) close(patience time.Duration) {
	g.mu.Lock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
	var empty chan struct{}
	if g.inside > 0 {
		empty = make(chan struct{})
		g.empty = empty
	}
	g.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-time.After(patience):
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// handles are the descriptors of the files that processes of the host have open through a view, so that
// [View.Leave] can close the files.
type handles struct {
	mu   sync.Mutex
	open map[int]bool
}

func (h *handles) add(fd int)  { h.mu.Lock(); h.open[fd] = true; h.mu.Unlock() }
func (h *handles) drop(fd int) { h.mu.Lock(); delete(h.open, fd); h.mu.Unlock() }

// clear replaces each file that a process of the host has open through the view by the null device, under the
// same descriptor, so that the files' filesystem can be unmounted.
func (h *handles) clear() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(null)
	h.mu.Lock()
	defer h.mu.Unlock()
	for fd := range h.open {
		_ = unix.Dup3(null, fd, unix.O_CLOEXEC) // both are open
	}
}
