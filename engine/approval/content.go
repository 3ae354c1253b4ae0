package approval

import (
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// At is a function that returns, for a changed path, the open tree with its new version and the path in that
// tree. It is nil if no tree can be read: then the content of files counts as unknown.
type At func(path string) (tree *os.File, at string)

// A Kind is a property of a changed file, such as a set-uid bit, that needs approval at any path.
type Kind struct {
	// Why is the reason, to be printed after "PATH: ".
	Why string
	// Flag is the option that approves it, "" for --allow PATH alone.
	Flag string
}

// The properties of changed files that need approval at any path. docs/held.md prints them.
var (
	setID        = Kind{"it runs with another user's or group's rights (set-id)", "--allow-setid"}
	device       = Kind{"it is a device", "--allow-devices"}
	capabilities = Kind{"it runs with capabilities (security.capability)", "--allow-capabilities"}
	pipe         = Kind{"it is a pipe or socket in place of a file, and hangs what reads it", ""}
	leavingLink  = Kind{"it is a symbolic link that leads out of the workspace", ""}
	leadingLink  = Kind{"it is a symbolic link, and its target needs approval: ", ""}
	climbingLink = Kind{"it is a symbolic link that goes up after a name (a/../b), and leads elsewhere when a link takes that name", ""}
	unchecked    = Kind{"Python runs it without comparing its source", ""}
	environment  = Kind{"it is a program of a virtual environment that was there before", ""}
	repository   = Kind{"it is a setting or hook of a git repository, which runs programs", ""}
)

// Kinds returns all properties of changed files that need approval at any path. For a link, messages add the
// reason of its target to that of the link.
func Kinds() []Kind {
	return []Kind{setID, device, capabilities, pipe, leavingLink, leadingLink, climbingLink, unchecked, environment, repository}
}

// byContent returns why a change needs approval because of its new content or of what lies around it: where a
// symbolic link leads, how Python would run a file, or that it belongs to a repository. "" means that it does
// not.
func (c *Checker) byContent(change *diff.Change, root *root) string {
	n := change.New
	if c.inRepository(change) {
		return repository.Why
	}
	if n == nil || change.Kind == diff.Modified && change.What&(diff.Content|diff.Type|diff.Target) == 0 {
		return ""
	}
	link := n.Mode&fs.ModeSymlink != 0
	if link {
		if why := c.byTarget(change, root); why != "" {
			return why
		}
	}
	switch {
	case !link && !n.Mode.IsRegular():
	case strings.HasSuffix(fold(change.Path), ".pyc") && (link || !c.checksSource(change.Path)):
		return unchecked.Why
	case c.inOldEnvironment(change.Path, link, root):
		return environment.Why
	}
	return ""
}

// byTarget returns why a changed symbolic link needs approval because of where it leads, or "". It may lead
// to a path in the tree that needs no approval itself. It is followed by way of the other links in the sandbox's tree,
// and of those in the trees before: the promotion may leave out that the sandbox replaced one of these. The link to the
// interpreter of a new virtual environment may lead anywhere.
func (c *Checker) byTarget(change *diff.Change, root *root) string {
	if why := c.byTargetIn(c.tree, change, root); why != "" {
		return why
	}
	for _, before := range c.before {
		if why := c.byTargetIn(func(p string) (*os.File, string) { return before, p }, change, root); why != "" {
			return why
		}
	}
	return ""
}

// byTargetIn does as [Checker.byTarget], with the other links of one tree, in which in finds a path.
func (c *Checker) byTargetIn(in At, change *diff.Change, root *root) string {
	to, inside := c.resolve(in, change, root)
	interpreter := root.inNewEnvironment(path.Dir(path.Join(root.path, change.Path))) && isInterpreter(change, to)
	if !inside && !interpreter {
		return leavingLink.Why
	}
	if why, _ := root.lookup(to, true); why != "" {
		return leadingLink.Why + why
	}
	if !inside || interpreter {
		return ""
	}
	within := strings.TrimPrefix(strings.TrimPrefix(to, strings.TrimSuffix(root.path, "/")), "/")
	switch {
	case c.ofRepository(within, false):
		return leadingLink.Why + repository.Why
	case c.inOldEnvironment(within, true, root):
		return leadingLink.Why + environment.Why
	case c.climbs(change.New.Target):
		return climbingLink.Why
	}
	return ""
}

// climbs reports whether the target of a symbolic link goes up after a name that lies in the tree, as a/../b
// does. Such a link leads elsewhere once a is a link, which may be promoted later and need no approval itself.
// Without such a step every link in the tree leads into the tree, whatever other links it passes.
func (c *Checker) climbs(target string) bool {
	if strings.HasPrefix(target, "/") {
		c.inRoot(&target)
	}
	named := false
	for step := range strings.SplitSeq(target, "/") {
		if step == ".." && named {
			return true
		}
		named = named || step != "" && step != "." && step != ".."
	}
	return false
}

// isInterpreter reports whether a changed link is that of a virtual environment to its interpreter:
// bin/python3, or the like, leads to a program with such a name in a directory bin.
func isInterpreter(change *diff.Change, to string) bool {
	named := func(p string) bool {
		return path.Base(path.Dir(p)) == "bin" && (strings.HasPrefix(path.Base(p), "python") || strings.HasPrefix(path.Base(p), "pypy"))
	}
	return named(change.Path) && named(to)
}

// resolve returns the absolute path to which a changed symbolic link leads, and whether that is in the tree.
// It follows other links as they are in the tree of in. Those beyond [vfs.MaxLinks] count as files: the kernel would
// not follow them, so the changed link leads nowhere.
func (c *Checker) resolve(in At, change *diff.Change, root *root) (abs string, inside bool) {
	at, rest := path.Dir(change.Path), change.New.Target
	for links := 0; rest != ""; {
		if strings.HasPrefix(rest, "/") {
			if !c.inRoot(&rest) {
				return path.Clean(rest), false
			}
			at = "."
		}
		step, more, _ := strings.Cut(rest, "/")
		rest = strings.TrimLeft(more, "/")
		switch {
		case step == "" || step == ".":
		case step == ".." && at == "." && root.path != "/":
			return path.Join(root.path, "..", rest), false
		case step == "..":
			at = path.Dir(at)
		default:
			at = path.Join(at, step)
			if target := readlink(in, at); target != "" && links < vfs.MaxLinks {
				links++
				at, rest = path.Dir(at), target+"/"+rest
			}
		}
	}
	return path.Join(root.path, at), true
}

// inRoot reports whether the absolute path *abs, to which a symbolic link leads, lies in the sandbox's tree.
// If so it makes *abs relative to the tree's root. What follows the root stays as it is: ".." after a link in
// the tree goes to where that link leads, and not back.
func (c *Checker) inRoot(abs *string) bool {
	for i := range c.roots {
		top := path.Clean(c.roots[i].path)
		at, rest := "/", *abs // a link on the way to the tree is a leaving one of its own, or the user's
		for at != top && rest != "" {
			step, more, _ := strings.Cut(rest, "/")
			at, rest = path.Join(at, step), strings.TrimLeft(more, "/")
		}
		if at == top {
			*abs = strings.TrimLeft(rest, "/")
			return true
		}
	}
	return false
}

// readlink returns the target of the symbolic link at p in the tree of in, or "" if p is no link or cannot be read.
func readlink(in At, p string) string {
	tree, at := in(p)
	if tree == nil {
		return ""
	}
	var buf [4096]byte // a link's target is shorter, see symlink(7)
	n, err := vfs.Readlink(int(tree.Fd()), at, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

func (c *Checker) tree(p string) (*os.File, string) {
	if c.at == nil {
		return nil, ""
	}
	return c.at(p)
}

// checksSource reports whether Python compares the byte code file p with its source before it runs it: by
// time and size (flags 0) or by content (flags 3), see PEP 552. Python never does so outside __pycache__.
func (c *Checker) checksSource(p string) bool {
	tree, at := c.tree(p)
	if tree == nil || path.Base(path.Dir(p)) != "__pycache__" {
		return false
	}
	f, err := vfs.OpenBeneath(int(tree.Fd()), at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [8]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return false
	}
	flags := binary.LittleEndian.Uint32(head[4:])
	return flags == 0 || flags == 3
}

// inOldEnvironment reports whether the path p is a program of a Python virtual environment that existed before
// the sandbox, so that the user may run the program from there. With link, p is a symbolic link, and may also
// stand in place of the directory of the programs.
func (c *Checker) inOldEnvironment(p string, link bool, root *root) bool {
	return c.hasPrograms(path.Dir(p), root) || link && c.hasPrograms(p, root)
}

// hasPrograms reports whether the directory dir is that of the programs in a virtual environment that is not
// new: bin or Scripts, beside a file pyvenv.cfg in any of the trees.
func (c *Checker) hasPrograms(dir string, root *root) bool {
	name, top := strings.ToLower(path.Base(dir)), path.Dir(dir)
	if name != "bin" && name != "scripts" || root.inNewEnvironment(path.Join(root.path, top)) {
		return false
	}
	return remembered(&c.environments, top, func() bool { return c.has(top, environmentFile) })
}

// environmentFile is the name of the file at the top of each Python virtual environment, see PEP 405.
const environmentFile = "pyvenv.cfg"

// newEnvironments returns the paths of the Python virtual environments that the changes create as a whole:
// new directories with a new pyvenv.cfg in them. Some rules need no approval of files in these.
func newEnvironments(changes []diff.Change) (all []string) {
	var dirs map[string]bool
	for i := range changes {
		if c := &changes[i]; c.Kind == diff.Added && path.Base(c.Path) == environmentFile {
			if dirs == nil {
				dirs = newDirectories(changes)
			}
			if dir := path.Dir(c.Path); dirs[dir] {
				all = append(all, dir)
			}
		}
	}
	return all
}

func newDirectories(changes []diff.Change) map[string]bool {
	dirs := map[string]bool{}
	for i := range changes {
		if c := &changes[i]; c.Kind == diff.Added && c.New.Mode.IsDir() {
			dirs[c.Path] = true
		}
	}
	return dirs
}
