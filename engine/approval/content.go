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

// At returns the tree, open, and the path in it that has the new version of a changed path. It is
// nil where no tree can be read: then what a file holds counts as unknown.
type At func(path string) (tree *os.File, at string)

// A Kind is what needs approval at any path, whatever its name.
type Kind struct {
	// Why is the reason, to be printed after "PATH: ".
	Why string
	// Flag is the option that approves it, "" for --allow PATH alone.
	Flag string
}

// The kinds. docs/held.md prints them.
var (
	setID        = Kind{"it runs with another user's or group's rights (set-id)", "--allow-setid"}
	device       = Kind{"it is a device", "--allow-devices"}
	capabilities = Kind{"it runs with capabilities (security.capability)", "--allow-capabilities"}
	pipe         = Kind{"it is a pipe or socket in place of a file, and hangs what reads it", ""}
	leavingLink  = Kind{"it is a symbolic link that leads out of the workspace", ""}
	leadingLink  = Kind{"it is a symbolic link, and its target needs approval: ", ""}
	unchecked    = Kind{"Python runs it without comparing its source", ""}
	environment  = Kind{"it is a program of a virtual environment that was there before", ""}
)

// Kinds returns all kinds. To the reason of a link's target, that of the target is added.
func Kinds() []Kind {
	return []Kind{setID, device, capabilities, pipe, leavingLink, leadingLink, unchecked, environment}
}

// byContent returns why a change needs approval for what its new version holds: where a link
// leads, and how Python would run a file.
func (c *Checker) byContent(change *diff.Change, root *root) string {
	n := change.New
	if n == nil || change.Kind == diff.Modified && change.What&(diff.Content|diff.Type|diff.Target) == 0 {
		return ""
	}
	switch {
	case n.Mode&fs.ModeSymlink != 0:
		return c.byTarget(change, root)
	case n.Mode.IsRegular() && strings.HasSuffix(fold(change.Path), ".pyc") && !c.checksSource(change.Path):
		return unchecked.Why
	case n.Mode.IsRegular() && c.inOldEnvironment(change.Path, root):
		return environment.Why
	}
	return ""
}

// byTarget returns why a symbolic link needs approval for where it leads. It may lead into
// the tree, unless the place there needs approval itself. The interpreter of a new environment
// may be anywhere.
func (c *Checker) byTarget(change *diff.Change, root *root) string {
	to, inside := c.resolve(change, root)
	if !inside && !(root.inNewEnvironment(path.Dir(path.Join(root.path, change.Path))) && isInterpreter(change, to)) {
		return leavingLink.Why
	}
	if why, _ := root.indexFor(path.Dir(to)).find(to, true); why != "" {
		return leadingLink.Why + why
	}
	return ""
}

// isInterpreter reports whether a link bin/python3 leads to a program named python3, or the like.
func isInterpreter(change *diff.Change, to string) bool {
	named := func(p string) bool {
		return path.Base(path.Dir(p)) == "bin" && (strings.HasPrefix(path.Base(p), "python") || strings.HasPrefix(path.Base(p), "pypy"))
	}
	return named(change.Path) && named(to)
}

// maxLinks is how many links the kernel follows in one path, see path_resolution(7).
const maxLinks = 40

// resolve returns the absolute path to which a changed symbolic link leads, and whether that is in
// the tree. It follows the other links of the sandbox's tree. A target with too many links leads
// nowhere.
func (c *Checker) resolve(change *diff.Change, root *root) (abs string, inside bool) {
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
			if target := c.readlink(at); target != "" && links < maxLinks {
				links++
				at, rest = path.Dir(at), target+"/"+rest
			}
		}
	}
	return path.Join(root.path, at), true
}

// inRoot reports whether an absolute path lies in the tree, and then makes it relative to the root.
func (c *Checker) inRoot(abs *string) bool {
	clean := path.Clean(*abs) // a link on the way to the tree is a leaving one of its own, or the user's
	for i := range c.roots {
		top := strings.TrimSuffix(c.roots[i].path, "/")
		if rest, ok := strings.CutPrefix(clean+"/", top+"/"); ok {
			*abs = strings.TrimSuffix(rest, "/")
			return true
		}
	}
	return false
}

// readlink returns the target of a link in the sandbox's tree, "" for no link.
func (c *Checker) readlink(p string) string {
	tree, at := c.tree(p)
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

// checksSource reports whether Python compares a file of byte code with its source before it runs
// it: by time and size (flags 0) or by content (flags 3), see PEP 552. It never does so outside
// __pycache__.
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

// inOldEnvironment reports whether a file is a program of a virtual environment that is not new.
func (c *Checker) inOldEnvironment(p string, root *root) bool {
	bin := path.Dir(p)
	top := path.Dir(bin)
	if name := strings.ToLower(path.Base(bin)); name != "bin" && name != "scripts" || root.inNewEnvironment(path.Join(root.path, top)) {
		return false
	}
	if bin != c.bin {
		c.bin, c.binOfEnvironment = bin, false
		if tree, at := c.tree(path.Join(top, environmentFile)); tree != nil {
			_, err := vfs.Lstat(int(tree.Fd()), at)
			c.binOfEnvironment = err == nil
		}
	}
	return c.binOfEnvironment
}

// environmentFile is at the top of each virtual environment, see PEP 405.
const environmentFile = "pyvenv.cfg"

// newEnvironments returns the directories that are new with the file of an environment in them.
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
