// Package approval decides which changes of a sandbox a user must approve by name before they may be
// promoted: changes of files that run by themselves later, and of files that grant rights.
//
// [Allow] is the set of approvals that a user gave, [Rules] the list of file patterns, [Kinds] the list of
// properties that need approval at any path. The package compares names and metadata. In the trees that its
// caller opened, it reads where links lead, how Python byte code is checked, and which directories are git
// repositories or virtual environments.
package approval

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Allow is the set of approvals that a user gave for one promotion, with options such as --allow PATH.
type Allow struct {
	// SetID approves regular files that have the set-user-id or set-group-id bit.
	SetID bool
	// Devices approves block and character devices.
	Devices bool
	// Capabilities approves files with file capabilities (the attribute security.capability).
	Capabilities bool
	// Private approves content that a label of the profile calls private; see package leak.
	Private bool
	// Paths approves every change at these paths and below. Each is a path or a
	// pattern of [pathlist.Match], absolute or relative to the target's root; "."
	// approves the whole tree.
	Paths []string
}

// A Needed lists the changes that the user has to approve before a promotion, with their reasons and the
// options that approve them.
type Needed struct {
	pathlist.List
	// Allow is the shortest list for [Allow.Paths], relative to the root, that approves all
	// of them together with the fields of Allow that Also sets. Wildcards in a file's name are
	// escaped.
	Allow []string
	Also  Allow
}

// String returns the changes that need approval as a message for the user: a line for each reason, with the
// first five paths.
func (n *Needed) String() string {
	const most = 5
	var reasons []string
	paths := map[string][]string{}
	for _, path := range n.Paths {
		why := n.Why[path]
		if paths[why] == nil {
			reasons = append(reasons, why)
		}
		paths[why] = append(paths[why], pathlist.Printable(path))
	}
	for i, why := range reasons {
		all := paths[why]
		reasons[i] = "needs approval, because " + why + ": " + strings.Join(all[:min(len(all), most)], ", ")
		if more := len(all) - most; more > 0 {
			reasons[i] += fmt.Sprintf(" and %d more", more)
		}
	}
	return strings.Join(reasons, "\n")
}

// byPath returns why a promotion of the change c needs approval because of its absolute path abs, such as a
// shell's start file; "" if it does not. by finds the rule. It also returns how many elements of the path the
// matching pattern covers. A change of only the time needs no approval.
func byPath(c *diff.Change, abs string, by *finder) (string, int) {
	if c.Kind == diff.Modified && c.What&^diff.Time == 0 {
		return "", 0
	}
	return by.find(abs, c.New != nil && c.New.Mode&fs.ModeSymlink != 0)
}

const capability = "security.capability"

// A need is why a change needs approval at any path, such as a set-uid bit, and the Allow that approves it,
// empty for one that only its path approves.
type need struct {
	why string
	by  Allow
}

// byKind returns each reason for which a promotion of the change c needs approval at any path; none if it
// needs no approval. A file may have several: one that is set-id may also have capabilities. A directory's
// set-group-id bit needs none, as it grants no rights.
func byKind(c *diff.Change) (all []need) {
	n, what := c.New, c.What
	if n == nil {
		return nil
	}
	if c.Kind == diff.Added {
		what = ^diff.Aspect(0)
	}
	const gained = diff.Content | diff.Mode | diff.Owner | diff.Type
	if n.Mode.IsRegular() && n.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && what&gained != 0 {
		all = append(all, need{setID.Why, Allow{SetID: true}})
	}
	if n.Mode&fs.ModeDevice != 0 && what&(gained|diff.Device) != 0 {
		all = append(all, need{device.Why, Allow{Devices: true}})
	}
	if _, caps := n.Xattrs[capability]; caps && what&(diff.Content|diff.Type|diff.Xattrs) != 0 {
		all = append(all, need{capabilities.Why, Allow{Capabilities: true}})
	}
	if n.Mode&(fs.ModeNamedPipe|fs.ModeSocket) != 0 && c.Old != nil && c.Old.Mode.IsRegular() {
		all = append(all, need{pipe.Why, Allow{}})
	}
	return all
}

// with returns a with the kinds of files (set-id, devices, capabilities) added that b approves.
func (a Allow) with(b Allow) Allow {
	a.SetID, a.Devices, a.Capabilities = a.SetID || b.SetID, a.Devices || b.Devices, a.Capabilities || b.Capabilities
	a.Private = a.Private || b.Private
	return a
}

// kinds returns which kinds of files a approves, in the order set-id, devices, capabilities, private content, so that
// two can be compared.
func (a Allow) kinds() [4]bool { return [4]bool{a.SetID, a.Devices, a.Capabilities, a.Private} }

// Args returns the command-line arguments of snapfs promote and apply that give these approvals, for a hint.
func (a Allow) Args() (args []string) {
	for i, flag := range []string{"--allow-setid", "--allow-devices", "--allow-capabilities", "--allow-private"} {
		if a.kinds()[i] {
			args = append(args, flag)
		}
	}
	for _, path := range a.Paths {
		args = append(args, "--allow", path)
	}
	return args
}

// Check returns those of the changes to be promoted that need approval which a does not give, or nil if there
// is none. It leaves out paths below one that it lists. root is the tree's absolute path; at opens the
// changed files and may be nil.
func (a Allow) Check(root string, changes []diff.Change, at At) *Needed {
	c := a.Checker(at, root)
	c.Add(changes)
	return c.Needed()
}

// A Checker collects those changes of one tree that the user must still approve. [Allow.Checker] makes it.
type Checker struct {
	allow  Allow
	at     At
	roots  []root
	needed Needed
	// before are the trees that the changes start from, see Before.
	before []*os.File
	// repositories says for directories whether each is a git repository, see isRepository, and
	// environments whether each is a virtual environment.
	repositories, environments map[string]bool
}

// A root is one absolute path under which a tree's files may be used, with the lookup of rules for paths
// below it. A tree may have several, since mounts or links give it other names.
type root struct {
	path string
	finder
}

// Checker returns a checker, which collects the changes of one tree that need more approval than a gives.
// roots are the absolute paths of the tree's root; the paths in a are relative to the first. at may be nil,
// see [At].
func (a Allow) Checker(at At, roots ...string) *Checker {
	c := &Checker{allow: a, at: at}
	for _, path := range roots {
		c.roots = append(c.roots, root{path, finder{index: patterns(), top: path}})
	}
	return c
}

// Before adds trees that the changes start from, open, such as the sandbox's base and the target of the
// promotion, and returns c. A directory that was a git repository or a virtual environment in one of them is
// judged as one, also if the sandbox's tree has it no longer. Trees that are nil are left out.
func (c *Checker) Before(trees ...*os.File) *Checker {
	for _, tree := range trees {
		if tree != nil {
			c.before = append(c.before, tree)
		}
	}
	return c
}

// Add collects those of changes that need approval before their promotion, by the path that they have below
// any of the tree's roots. They must be all changes of the tree: some rules depend on several.
func (c *Checker) Add(changes []diff.Change) {
	for _, dir := range newEnvironments(changes) {
		for i := range c.roots {
			c.roots[i].news = append(c.roots[i].news, path.Join(c.roots[i].path, dir))
		}
	}
	for i := range changes {
		if !c.addByPath(&changes[i]) {
			c.AddKind(&changes[i])
		}
	}
}

// addByPath reports whether a change needs approval because of its path or content, and collects it unless
// the user has approved it.
func (c *Checker) addByPath(change *diff.Change) bool {
	for i := range c.roots {
		root := &c.roots[i]
		abs := path.Join(root.path, change.Path)
		why, depth := byPath(change, abs, &root.finder)
		if why == "" {
			why, depth = c.byContent(change, root), strings.Count(abs, "/")
		}
		if why == "" {
			continue
		}
		if !c.allow.approves(c.roots[0].path, change.Path) {
			c.needed.Add(change.Path, why)
			c.needed.Allow = append(c.needed.Allow, upTo(change.Path, depth-strings.Count(strings.TrimRight(root.path, "/"), "/")))
		}
		return true
	}
	return false
}

// AddKind collects a change if it needs approval at any path, such as one that sets a set-uid bit, unless the
// user has approved it for each of its reasons.
func (c *Checker) AddKind(change *diff.Change) {
	for _, n := range byKind(change) {
		byFlag := n.by.kinds() != [4]bool{}
		if byFlag && c.allow.with(n.by).kinds() == c.allow.kinds() || c.allow.approves(c.roots[0].path, change.Path) {
			continue
		}
		c.needed.Add(change.Path, n.why)
		c.needed.Also = c.needed.Also.with(n.by)
		if !byFlag {
			c.needed.Allow = append(c.needed.Allow, change.Path)
		}
	}
}

// Needed returns the collected changes that the user must approve before a promotion, sorted and without
// paths below others; nil if there is none.
func (c *Checker) Needed() *Needed {
	if len(c.needed.Paths) == 0 {
		return nil
	}
	for _, list := range []*[]string{&c.needed.Paths, &c.needed.Allow} {
		slices.SortFunc(*list, diff.ComparePaths)
		var top []string
		for _, p := range *list {
			if n := len(top); n == 0 || p != top[n-1] && !diff.Inside(p, top[n-1]) {
				top = append(top, p)
			}
		}
		*list = top
	}
	for i, p := range c.needed.Allow {
		c.needed.Allow[i] = pathlist.Escape(p)
	}
	return &c.needed
}

// upTo returns the first n elements of the path p, the part that a rule's pattern matched, or "." if n is 0.
func upTo(p string, n int) string {
	if n < 1 {
		return "."
	}
	elements := strings.Split(p, "/")
	return strings.Join(elements[:min(n, len(elements))], "/")
}

// approves reports whether one of a.Paths approves p, a path in the tree at the absolute path root.
func (a Allow) approves(root, p string) bool {
	return slices.ContainsFunc(a.Paths, func(pattern string) bool { return pathlist.Match(root, pattern, path.Join(root, p)) })
}

// Validate returns ErrNotSupported for an empty path in a.Paths, such as that of an unset shell variable:
// path.Join would make it the whole tree.
func (a Allow) Validate() error {
	if slices.Contains(a.Paths, "") {
		return &errs.Error{Op: "allowing", Kind: errs.ErrNotSupported, Err: errors.New("empty path")}
	}
	return nil
}
