package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
)

// PlanOptions say what of a sandbox is carried, and where to. The zero value is
// the workspace, merged onto itself, without what approval.Allow lists.
type PlanOptions struct {
	// Only limits it to what these match: each is a path or a pattern of
	// path.Match, absolute or relative to the workspace, and means what lies
	// beneath it, too. One without a slash, with a wildcard in it, matches names
	// at any depth. What lies outside the workspace is only carried when an
	// absolute one names it.
	Only []string
	// Target is the directory that gets the workspace's changes, absolute, or ""
	// for the workspace itself. It is merged by content, with the same base.
	Target string
	// Allow names what is held back otherwise.
	Allow approval.Allow
	// Also are paths, relative to the workspace, that the sandbox has changed,
	// though its workspace may have got that from it: see withCarried.
	Also []string
	// out: it is to be carried out, too.
	execute bool
}

// A Plan is what a promotion would do: the sandbox's changes merged onto the
// real tree as it is now, and what each step expects to find there.
type Plan struct {
	Format int `json:"format"`
	// Fingerprint is the SHA-256 over the target and all steps, with the
	// content that each expects and makes.
	Fingerprint string    `json:"fingerprint"`
	Sandbox     string    `json:"sandbox"`
	Target      string    `json:"target"`
	Made        time.Time `json:"made"`
	// Steps are in the order of their paths.
	Steps []Step `json:"steps"`
	// Conflicts have to be answered first, or resolved in the sandbox.
	Conflicts []Conflict `json:"conflicts"`
	// Held are places that are held back until they are allowed by name; they
	// are in no step. Allow are the fewest that would lift it.
	NeedsApproval []ApprovalPath `json:"held"`
	Allow         []string       `json:"allow,omitempty"`
	// Skipped are sockets, which nothing but their server can make.
	Skipped []string `json:"skipped,omitempty"`
	// Elsewhere is the number of changes outside the workspace that were not
	// named.
	Elsewhere int `json:"elsewhere"`
}

// A Step changes one path.
type Step struct {
	// Path is absolute.
	Path string `json:"path"`
	// Do is "add", "change" or "delete"; What says what of it changes.
	Do   string   `json:"do"`
	What []string `json:"what,omitempty"`
	// Merged: it holds something of both sides.
	Merged bool `json:"merged,omitempty"`
	// From is what the sandbox calls it, where that is another path.
	From string `json:"from,omitempty"`
	// Expect is what has to be there, and Result what will be; nil for nothing.
	Expect *State `json:"expect"`
	Result *State `json:"result"`
}

// TimeOnly reports whether it only repeats what the names in a directory say, as
// [diff.Change.Echo] does.
func (s *Step) TimeOnly() bool {
	return s.Do == "change" && len(s.What) == 1 && s.What[0] == "time" && s.Result.Type == "directory"
}

// Count is how many steps a person is told of.
func (p *Plan) Count() int {
	n := 0
	for i := range p.Steps {
		if !p.Steps[i].TimeOnly() {
			n++
		}
	}
	return n
}

// A State is what a path holds, without its times.
type State struct {
	Type   string            `json:"type"`
	Mode   string            `json:"mode"`
	UID    uint32            `json:"uid"`
	GID    uint32            `json:"gid"`
	Size   int64             `json:"size,omitempty"`
	Target string            `json:"target,omitempty"`
	Device uint64            `json:"device,omitempty"`
	Xattrs map[string]string `json:"xattrs,omitempty"`
	// SHA256 is that of a regular file's content.
	SHA256 string `json:"sha256,omitempty"`
}

// A Conflict is a place with no single answer.
type Conflict struct {
	// Path is absolute.
	Path string     `json:"path"`
	Kind merge.Kind `json:"kind"`
	// Why completes "PATH: ".
	Why string `json:"why"`
	// MinePath and RealPath say where each side has it, where that is elsewhere.
	MinePath string `json:"mine_path,omitempty"`
	RealPath string `json:"real_path,omitempty"`
	// Also are the other places that wait for the same answer.
	Also []string `json:"also,omitempty"`
	// InSandbox: a refresh has brought it there, to be resolved.
	InSandbox bool `json:"in_sandbox,omitempty"`
	// alone: it is about a directory itself, and not about what lies in it.
	alone bool
}

// An ApprovalPath is held back.
type ApprovalPath struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// PlanOf says what a promotion of a sandbox would do. It touches nothing, and keeps
// the plan as a file of the state directory, so that [Engine.Promote] can say what
// differs. Processes in the sandbox stand still meanwhile.
// Cost: that of [Engine.Diff]; reading each changed file thrice, once for every
// version of it.
// Errors: ErrNotFound (the sandbox, the target, a path of Only at which nothing
// changed), ErrBusy.
func (rc *Reconciler) PlanOf(ctx context.Context, name string, o PlanOptions) (*Plan, error) {
	c, done, err := rc.Begin(ctx, name, o, answers{})
	if err != nil {
		return nil, err
	}
	defer done()
	rc.sandboxes.ReportMissingWorkspace("planning", c.Rec)
	if err := c.AddSteps(ctx); err != nil {
		return nil, err
	}
	return c.Plan, rc.SavePlan(c.Plan)
}

// A Promotion is a plan with all that is needed to carry it out.
type Promotion struct {
	Rec   *catalog.Record
	Plan  *Plan
	Parts []*promotionPart
}

type promotionPart struct {
	*partMerge
	// Changes are those of the merge that are carried.
	Changes []diff.Change
}

// Begin merges what is to be carried. Until done is called, the sandbox's
// lock is held and its processes stand still.
func (rc *Reconciler) Begin(ctx context.Context, name string, o PlanOptions, a answers) (c *Promotion, done func(), err error) {
	h, err := rc.supervise.HoldAny(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	thaw, err := rc.freezeFor(ctx, h, o)
	if err != nil {
		h.Release()
		return nil, nil, err
	}
	looked := rc.baseline.Record(ctx, h.Record)
	c = &Promotion{Rec: h.Record, Plan: &Plan{
		Format: 1, Sandbox: name, Target: h.Workspace, Made: time.Now(),
		Steps: []Step{}, Conflicts: []Conflict{}, NeedsApproval: []ApprovalPath{},
	}}
	changes, err := rc.compare.ChangesAt(ctx, h.Record, "", "", looked)
	done = func() {
		for _, p := range c.Parts {
			p.close()
		}
		if changes != nil {
			changes.Close()
		}
		thaw()
		h.Release()
	}
	if err == nil {
		err = rc.merge(ctx, c, changes, o, a)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return c, done, nil
}

func (rc *Reconciler) merge(ctx context.Context, c *Promotion, changes *compare.Changes, o PlanOptions, a answers) error {
	if o.Target != "" {
		target, err := filepath.EvalSymlinks(o.Target)
		if err != nil || !filepath.IsAbs(o.Target) {
			return &errs.Error{Op: "looking for", Path: o.Target, Kind: errs.ErrNotFound, Err: errors.New("there is no such directory")}
		}
		c.Plan.Target, o.Target = target, target
	}
	only, err := compare.PatternsOf(c.Rec.Workspace, o.Only)
	if err != nil {
		return err
	}
	unresolved, err := rc.unresolved(ctx, c.Rec, changes)
	if err != nil {
		return err
	}
	a.failed = new(error)
	request := mergeRequest{rec: c.Rec, target: o.Target, choose: a.choose(ctx, c.Rec), failed: a.failed}
	if request.target == c.Rec.Workspace {
		request.target = ""
	}
	if request.target != "" {
		if err := rc.compare.AddPromoted(ctx, c.Rec, changes, o.Also); err != nil {
			return err
		}
	}
	for _, p := range changes.Parts {
		if p, ok := only.Part(p, &c.Plan.Elsewhere); ok {
			if err := rc.mergeOne(ctx, c, request, p, only, o.Allow); err != nil {
				return err
			}
		}
	}
	carried := changedPlaces{}
	for _, p := range c.Parts {
		carried.add(&p.Part, p.Changes)
	}
	for _, u := range unresolved {
		if slices.ContainsFunc(u.places(), only.Matches) || carried.at(u.places(), u.alone) != nil {
			c.Plan.Conflicts = append(c.Plan.Conflicts, u)
		}
	}
	return only.Unmatched()
}

// mergeOne merges one part, and picks what of the result is carried.
func (rc *Reconciler) mergeOne(ctx context.Context, c *Promotion, r mergeRequest, p compare.Part, only *compare.Patterns, allow approval.Allow) error {
	m, err := rc.mergePart(ctx, r, p)
	if err != nil {
		return err
	}
	part := &promotionPart{partMerge: m}
	c.Parts = append(c.Parts, part)
	for _, k := range m.res.Conflicts {
		if slices.ContainsFunc(k.Paths(), func(path string) bool { return only.Matches(filepath.Join(p.Root, path)) }) {
			c.Plan.Conflicts = append(c.Plan.Conflicts, m.conflict(k))
		}
	}
	part.Changes = withoutTimeOnly(only.Pick(p.Root, m.res.Changes))
	part.Changes = c.dropSockets(m.path, part.Changes)
	if held := allow.Check(m.path, part.Changes); held != nil {
		part.Changes = c.requireApproval(m.path, part.Changes, held)
	}
	return nil
}

// withoutTimeOnly leaves out the times of directories in which nothing else is
// changed.
func withoutTimeOnly(changes []diff.Change) []diff.Change {
	told := map[string]bool{}
	for _, c := range changes {
		if !c.TimeOnly() {
			for dir := filepath.Dir(c.Path); !told[dir]; dir = filepath.Dir(dir) {
				told[dir] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c diff.Change) bool { return c.TimeOnly() && !told[c.Path] })
}

func (m *partMerge) conflict(k merge.Conflict) Conflict {
	c := Conflict{Path: filepath.Join(m.path, k.Path), Kind: k.Kind, Why: k.Why}
	if k.MinePath != "" {
		c.MinePath = filepath.Join(m.path, k.MinePath)
	}
	if k.RealPath != "" {
		c.RealPath = filepath.Join(m.path, k.RealPath)
	}
	c.Also = each(k.Also, func(path string) string { return filepath.Join(m.path, path) })
	return c
}

// leaveSockets takes sockets out: nothing but their server can make one.
func (c *Promotion) dropSockets(root string, changes []diff.Change) (kept []diff.Change) {
	for _, ch := range changes {
		if ch.New != nil && ch.New.Mode&fs.ModeSocket != 0 {
			c.Plan.Skipped = append(c.Plan.Skipped, filepath.Join(root, ch.Path))
			if ch.Old == nil || ch.Old.Mode&fs.ModeSocket != 0 {
				continue
			}
			ch.Kind, ch.New, ch.What = diff.Deleted, nil, 0 // what it replaced is gone all the same
		}
		kept = append(kept, ch)
	}
	return kept
}

// requireApproval takes out what is held back, and the deletion of directories that it
// lies in.
func (c *Promotion) requireApproval(root string, changes []diff.Change, held *approval.Needed) []diff.Change {
	for _, path := range held.Paths {
		c.Plan.NeedsApproval = append(c.Plan.NeedsApproval, ApprovalPath{filepath.Join(root, path), held.Why[path]})
	}
	for _, path := range held.Allow {
		c.Plan.Allow = append(c.Plan.Allow, filepath.Join(root, path))
	}
	above := map[string]bool{}
	for _, path := range held.Paths {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			above[dir] = true
		}
	}
	isHeld := func(path string) bool {
		for _, h := range held.Paths {
			if compare.LiesIn(path, h) {
				return true
			}
		}
		return false
	}
	var kept []diff.Change
	var stays string
	for _, ch := range changes {
		goes := ch.Old != nil && ch.Old.Mode.IsDir() && (ch.New == nil || !ch.New.Mode.IsDir())
		switch {
		case isHeld(ch.Path):
		case stays != "" && compare.LiesIn(ch.Path, stays) && ch.New != nil: // it cannot take the place of what stays
		case goes && above[ch.Path]:
			c.Plan.NeedsApproval = append(c.Plan.NeedsApproval, ApprovalPath{filepath.Join(root, ch.Path), "something that is held back lies in it"})
			if ch.New != nil {
				stays = ch.Path
			}
		default:
			kept = append(kept, ch)
		}
	}
	return kept
}

// Print fills in the steps, and the fingerprint of them. Cost: reading what each
// expects and makes.
func (c *Promotion) AddSteps(ctx context.Context) error {
	for _, p := range c.Parts {
		steps, err := p.steps(ctx)
		if err != nil {
			return err
		}
		c.Plan.Steps = append(c.Plan.Steps, steps...)
	}
	c.Plan.Fingerprint = fingerprintOf(c.Plan)
	return nil
}

// steps are those of a part, made by two threads: that is mostly waiting for the
// kernel to open what each expects and makes.
func (p *promotionPart) steps(ctx context.Context) ([]Step, error) {
	both := map[string]bool{}
	for _, c := range p.in.Real {
		both[c.Path] = true
	}
	steps := make([]Step, len(p.Changes))
	half := len(steps) / 2
	var failures [2]error
	var other sync.WaitGroup
	other.Go(func() { failures[1] = p.someSteps(ctx, steps, half, len(steps), both) })
	failures[0] = p.someSteps(ctx, steps, 0, half, both)
	other.Wait()
	if failures[0] == nil {
		failures[0] = failures[1]
	}
	return steps, failures[0]
}

func (p *promotionPart) someSteps(ctx context.Context, steps []Step, from, to int, both map[string]bool) error {
	var h hasher
	real, mine, built := baseline.RootedReader{Root: p.real}, baseline.RootedReader{Root: p.Part.New}, baseline.RootedReader{Root: p.in.Scratch}
	defer real.Close()
	defer mine.Close()
	defer built.Close()
	for i, c := range p.Changes[from:to] {
		if err := ctx.Err(); err != nil {
			return &errs.Error{Op: "planning", Path: p.path, Kind: errs.ErrInterrupted, Err: err}
		}
		s := &steps[from+i]
		s.Path, s.Do = filepath.Join(p.path, c.Path), verb(c)
		s.Merged = p.res.Built[c.Path] || both[c.Path] && c.Kind == diff.Modified
		if c.Kind == diff.Modified {
			s.What = c.What.Names()
		}
		path, source := c.Path, &mine
		if other, ok := p.res.From[c.Path]; ok {
			s.From, path = filepath.Join(p.Part.Root, other), other
		}
		if p.res.Built[c.Path] {
			path, source = c.Path, &built
		}
		var err error
		if s.Expect, err = stateOf(&h, &real, c.Path, c.Old); err == nil {
			s.Result, err = stateOf(&h, source, path, c.New)
		}
		if err != nil {
			return hostfs.LookError(s.Path, err)
		}
	}
	return nil
}

func verb(c diff.Change) string {
	switch c.Kind {
	case diff.Added:
		return "add"
	case diff.Deleted:
		return "delete"
	}
	return "change"
}

func stateOf(h *hasher, l *baseline.RootedReader, path string, n *diff.Node) (*State, error) {
	if n == nil {
		return nil, nil
	}
	s := &State{
		Type: typeName(n.Mode), Mode: modeString(n.Mode), UID: n.UID, GID: n.GID,
		Target: baseline.EscapePath(n.Target), Device: n.Rdev,
	}
	for name, value := range n.Xattrs {
		if s.Xattrs == nil {
			s.Xattrs = map[string]string{}
		}
		s.Xattrs[baseline.EscapePath(name)] = baseline.EscapePath(value)
	}
	if !n.Mode.IsRegular() {
		return s, nil
	}
	s.Size = n.Size
	fd, err := l.OpenFD(path)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	s.SHA256, err = h.of(fd)
	return s, err
}

func typeName(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symlink"
	case fs.ModeNamedPipe:
		return "fifo"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeDevice:
		return "block device"
	}
	return "character device"
}

// modeString is the permissions with the set-id and sticky bits, in octal.
func modeString(m fs.FileMode) string {
	bits := uint32(m.Perm())
	for _, b := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	return fmt.Sprintf("%04o", bits)
}
