package promote

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/kernel"
)

// Allow lists what is held back unless it is allowed.
type Allow struct {
	// SetID: regular files with the set-user-id or set-group-id bit.
	SetID bool
	// Devices: block and character devices.
	Devices bool
	// Capabilities: files with security.capability.
	Capabilities bool
	// Paths are allowed whatever is held back there: each is a path or a pattern
	// of [path.Match], absolute or relative to the target's root, and means what
	// lies beneath it, too. "." is all. What is no pattern means itself.
	Paths []string
}

// HeldBack names all that was held back, and is the cause of the ErrDenied.
type HeldBack struct {
	Refused
	// Allow are paths, relative to the root, as few as say it, that would lift it
	// all in [Allow.Paths].
	Allow []string
}

// Unwrap lets errors.As find the Refused.
func (h *HeldBack) Unwrap() error { return &h.Refused }

// Held says why a change is held back until it is allowed by name, or "". abs is
// the absolute path that it changes. It never touches a filesystem.
func Held(c diff.Change, abs string) string {
	if why, _ := heldPlace(&c, abs, &finder{rules: heldRules()}); why != "" {
		return why
	}
	why, _ := heldKind(&c)
	return why
}

// heldPlace: a change of the time alone says nothing to anybody.
func heldPlace(c *diff.Change, abs string, by *finder) (string, int) {
	if c.Kind == diff.Modified && c.What&^diff.Time == 0 {
		return "", 0
	}
	return by.find(abs, c.New != nil && c.New.Mode&fs.ModeSymlink != 0)
}

const capability = "security.capability"

// heldKind says why what a change makes is held back wherever it lies, and which
// of the three kinds it is. The set-group-id bit of a directory gives no powers.
func heldKind(c *diff.Change) (why string, lifted func(Allow) bool) {
	n, what := c.New, c.What
	if n == nil {
		return "", nil
	}
	if c.Kind == diff.Added {
		what = ^diff.Aspect(0)
	}
	const gained = diff.Content | diff.Mode | diff.Owner | diff.Type
	_, caps := n.Xattrs[capability]
	switch {
	case n.Mode.IsRegular() && n.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && what&gained != 0:
		return "it runs with another user's or group's rights (set-id)", func(a Allow) bool { return a.SetID }
	case n.Mode&fs.ModeDevice != 0 && what&(gained|diff.Device) != 0:
		return "it is a device", func(a Allow) bool { return a.Devices }
	case caps && what&(diff.Content|diff.Type|diff.Xattrs) != 0:
		return "it runs with capabilities (security.capability)", func(a Allow) bool { return a.Capabilities }
	}
	return "", nil
}

// Withheld says which of the changes of a tree are held back, nil for none. Of
// what lies beneath one that is, nothing is said. root is the tree's absolute
// path.
func (a Allow) Withheld(root string, changes []diff.Change) *HeldBack {
	var h HeldBack
	roots := namesOf(root)
	for i := range changes {
		a.hold(&h, &changes[i], roots)
	}
	if len(h.Paths) == 0 {
		return nil
	}
	h.settle()
	return &h
}

// A rootName is a name of a tree's root, with what finds the rules beneath it.
type rootName struct {
	path string
	finder
}

func namesOf(paths ...string) []rootName {
	var names []rootName
	for _, path := range paths {
		names = append(names, rootName{path, finder{rules: heldRules()}})
	}
	return names
}

// hold notes a change that is held back by one of the names of its root.
func (a Allow) hold(h *HeldBack, c *diff.Change, roots []rootName) {
	for i := range roots {
		root := &roots[i]
		why, depth := heldPlace(c, path.Join(root.path, c.Path), &root.finder)
		if why == "" {
			continue
		}
		if a.lifts(roots[0].path, c.Path) {
			return
		}
		h.add(c.Path, why)
		h.Allow = append(h.Allow, upTo(c.Path, depth-strings.Count(strings.TrimRight(root.path, "/"), "/")))
		return
	}
	a.holdKind(h, c, roots[0].path)
}

// holdKind notes a change that is held back wherever it lies.
func (a Allow) holdKind(h *HeldBack, c *diff.Change, root string) {
	if why, lifted := heldKind(c); why != "" && !lifted(a) && !a.lifts(root, c.Path) {
		h.add(c.Path, why)
		h.Allow = append(h.Allow, c.Path)
	}
}

// settle brings the lists in order, and leaves out what lies beneath others.
func (h *HeldBack) settle() {
	for _, list := range []*[]string{&h.Paths, &h.Allow} {
		slices.SortFunc(*list, func(a, b string) int {
			if a == b {
				return 0
			} else if diff.Less(a, b) {
				return -1
			}
			return 1
		})
		var kept []string
		for _, p := range *list {
			if n := len(kept); n == 0 || p != kept[n-1] && !beneath(p, kept[n-1]) {
				kept = append(kept, p)
			}
		}
		*list = kept
	}
}

// upTo are the first n elements of a path: the root where the place lies above.
func upTo(p string, n int) string {
	if n < 1 {
		return "."
	}
	elements := strings.Split(p, "/")
	return strings.Join(elements[:min(n, len(elements))], "/")
}

// lifts reports whether a path was allowed by name.
func (a Allow) lifts(root, p string) bool {
	abs := path.Join(root, p)
	for _, pattern := range a.Paths {
		subject := abs
		if !strings.HasPrefix(pattern, "/") {
			subject = path.Join("/", p)
		}
		for pattern := path.Join("/", pattern); ; subject = path.Dir(subject) {
			if ok, err := path.Match(pattern, subject); subject == pattern || err == nil && ok {
				return true
			}
			if subject == "/" {
				break
			}
		}
	}
	return false
}

// check refuses a variable that was never set: path.Join would make it all.
func (a Allow) check() error {
	if slices.Contains(a.Paths, "") {
		return &errs.Error{Op: "allowing", Kind: errs.ErrNotSupported, Err: errors.New("an empty path")}
	}
	return nil
}

// refuseHeld refuses what is held back, unless it is allowed. The root counts
// under the path it was given, and the one it really has.
func (p *planner) refuseHeld(allow Allow) error {
	if err := allow.check(); err != nil {
		return err
	}
	names := []string{p.t.Path}
	if real, err := kernel.PathOf(p.t.Root); err == nil && real != p.t.Path && filepath.IsAbs(real) {
		names = append(names, real)
	}
	roots := namesOf(names...)
	var h HeldBack
	for i := range p.steps {
		allow.hold(&h, &p.steps[i].Change, roots)
	}
	p.wanted(func(path string, n *diff.Node, what diff.Aspect) {
		// What is made anew is gained, even where the change is a smaller one.
		allow.holdKind(&h, &diff.Change{Path: path, Kind: diff.Modified, What: what, New: n}, names[0])
	})
	if len(h.Paths) == 0 {
		return nil
	}
	h.settle()
	return &errs.Error{Op: doing, Path: p.t.Path, Kind: errs.ErrDenied, Err: &h}
}
