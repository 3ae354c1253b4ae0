package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
)

// PlanOptions select the changes to promote and the target. The zero value selects all changes in the workspace,
// merged onto the workspace itself, and approves nothing.
type PlanOptions struct {
	// Only limits the changes to those at or below these paths. Each is a path or a pattern of pathlist.Match,
	// absolute or relative to the workspace. A path outside the workspace is promoted only if an absolute
	// pattern names it. One that matches no change is an error, as in Allow.
	Only   []string
	Target string         // the directory that receives the workspace's changes, with the same merge base; "" for the workspace
	Drift  Drift          // what happens where the real tree has changed since the base, too
	Allow  approval.Allow // approves paths that need approval
	// Also lists workspace paths that may be promoted already; see compare.Comparer.AddPromoted.
	Also    []string
	Git     gitresult.Options // how commits are promoted
	Files   string            // a fork of the sandbox whose files are promoted instead, or ""
	execute bool              // set if the plan will be carried out, not only shown
}

// Drift selects how a promotion treats a path that both the sandbox and the real tree have changed.
type Drift int

// MergeDrift merges the sandbox's change with that of the real tree. RefuseDrift makes each such path a conflict of
// kind kindDrift, unless the real tree already has the sandbox's change.
const (
	MergeDrift Drift = iota
	RefuseDrift
)

// kindDrift is the kind of a conflict that a merge could resolve, but snapfs apply (RefuseDrift) may not.
const kindDrift merge.Kind = "drift"

// op returns the word for the operation in errors: RefuseDrift is snapfs apply, else promote.
func (d Drift) op() string {
	if d == RefuseDrift {
		return "applying"
	}
	return "promoting"
}

// option returns the word for the arguments that gave the paths of PlanOptions.Only, for an error about one.
func (d Drift) option() string {
	if d == RefuseDrift {
		return "applying"
	}
	return "--only"
}

// Plan says in all detail what a promotion would do: the sandbox's changes merged onto the present real tree, with
// the state that each step expects there.
type Plan struct {
	Format      int        `json:"format"`
	Fingerprint string     `json:"fingerprint"` // SHA-256 over the target and all steps
	Sandbox     string     `json:"sandbox"`
	Target      string     `json:"target"`
	Made        time.Time  `json:"made"`
	Steps       []Step     `json:"steps"`     // sorted by path
	Conflicts   []Conflict `json:"conflicts"` // to be resolved before a promotion
	// NeedsApproval are the changes that need approval, without which nothing is promoted. Allow is the
	// shortest list of paths that approves them, except those that Approving approves by kind.
	NeedsApproval []ApprovalPath     `json:"held"`
	Allow         []string           `json:"allow,omitempty"`
	Labelled      []ApprovalPath     `json:"labelled,omitempty"` // changes with content labelled secret, which nothing lets out
	Skipped       []string           `json:"skipped,omitempty"`  // sockets, which only their server can create
	Elsewhere     int                `json:"elsewhere"`          // the number of changes outside the workspace that Only does not select
	Left          []string           `json:"left,omitempty"`     // changed paths that [result] of the profile leaves in the sandbox
	Git           []gitresult.Report `json:"git,omitempty"`      // the moved refs, and how they are promoted
	also          []string           // the flags that approve changes by kind
	bound         string             // the fingerprint, shortened, of the plan once it is approved; see bind
	already       []string           // the selected paths at which the real tree has the sandbox's change, too
}

// A Step of a plan says how a promotion would change one path of the real tree.
type Step struct {
	Path   string   `json:"path"`             // absolute
	Do     string   `json:"do"`               // "add", "change" or "delete"
	What   []string `json:"what,omitempty"`   // the changed aspects of a change
	Merged bool     `json:"merged,omitempty"` // set if the result combines both sides
	Git    bool     `json:"git,omitempty"`    // set for a file of git, which snapfs computes; not counted
	From   string   `json:"from,omitempty"`   // the path in the sandbox, if it differs from Path; else ""
	// Expect is the state before the step, and Result the state after it; nil for nothing.
	Expect *State `json:"expect"`
	Result *State `json:"result"`
}

// TimeOnly reports whether the step only sets the time of a directory, so that it is not counted.
func (s *Step) TimeOnly() bool {
	return s.Do == "change" && len(s.What) == 1 && s.What[0] == "time" && s.Result.Type == "directory"
}

// Count returns the number of steps, without directories' times and git's own files.
func (p *Plan) Count() int {
	n := 0
	for i := range p.Steps {
		if !p.Steps[i].TimeOnly() && !p.Steps[i].Git {
			n++
		}
	}
	return n
}

// A State is the content and metadata of a file at a path, without times, before or after a step of a plan.
type State struct {
	Type   string            `json:"type"`
	Mode   string            `json:"mode"`
	UID    uint32            `json:"uid"`
	GID    uint32            `json:"gid"`
	Size   int64             `json:"size,omitempty"`
	Target string            `json:"target,omitempty"`
	Device uint64            `json:"device,omitempty"`
	Xattrs map[string]string `json:"xattrs,omitempty"`
	SHA256 string            `json:"sha256,omitempty"` // the digest of a regular file of less than 1 GiB
	// DataSHA256 is the digest of a larger file: of its size, and of each 256 KiB that are not all zeros, with
	// their offset ([diff.Digest]).
	DataSHA256 string `json:"data_sha256,omitempty"`
}

// A Conflict is a path at which a merge of the sandbox's and the real changes has no single result.
type Conflict struct {
	Path string     `json:"path"` // absolute
	Kind merge.Kind `json:"kind"`
	Why  string     `json:"why"` // the reason for the conflict, as text that follows "PATH: "
	// MinePath and RealPath are the paths of the sides, where they differ from Path.
	MinePath  string   `json:"mine_path,omitempty"`
	RealPath  string   `json:"real_path,omitempty"`
	Also      []string `json:"also,omitempty"`       // further paths that an answer resolves
	InSandbox bool     `json:"in_sandbox,omitempty"` // a refresh left it in the sandbox, to be resolved there
	mends     []string // the commands that mend the conflict, if no answer does
	alone     bool     // set if the conflict is about a directory itself and not about its entries
}

// An ApprovalPath is a path of a plan whose change needs the user's approval, with the reason.
type ApprovalPath struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// PlanOf returns what a promotion of a sandbox would do, and changes no file. It saves the plan in the state
// directory, so that [Reconciler.Promote] can report what differs from it. Processes in the sandbox are frozen
// meanwhile. Cost: that of compare.Comparer.Diff, and reading each changed file in three versions. Errors:
// ErrNotFound (the sandbox, the target, a path of Only without changes), ErrBusy.
func (rc *Reconciler) PlanOf(ctx context.Context, name string, o PlanOptions) (*Plan, error) {
	return compare.Served(ctx, func(ctx context.Context) (*Plan, error) {
		c, done, err := rc.beginAt(ctx, catalog.AtPlan, name, o, Answers{})
		if err != nil {
			return nil, err
		}
		defer done()
		rc.sandboxes.ReportMissingWorkspace("planning", c.Rec)
		if err := c.AddSteps(ctx); err != nil {
			return nil, err
		}
		if err := rc.bind(ctx, c, o, Answers{}); err != nil {
			return nil, err
		}
		if err := rc.SavePlan(c.Plan); err != nil {
			return c.Plan, err
		}
		rc.announce(events.PlanMade, c.Rec, events.Data{Plan: c.Plan.Fingerprint, Target: c.Plan.Target, Changes: c.Plan.Count()})
		return c.Plan, nil
	})
}

// A Promotion is a plan with the open files that executing it needs; done of [Reconciler.Begin] closes them.
type Promotion struct {
	Rec   *catalog.Record
	Plan  *Plan
	Parts []*promotionPart
	held  *catalog.Locked // the lock of the sandbox, nil where another caller holds it
}

// A promotionPart is the part of a promotion in one directory: its merge, and the changes to promote.
type promotionPart struct {
	*partMerge
	// Changes are those of the merge that will be promoted, and allow approves paths of the target.
	Changes []diff.Change
	allow   approval.Allow
	repos   []*gitresult.Repository // those that the sandbox wrote to
	git     []*gitresult.Result     // the plans for their commits
	// gitFiles are the paths of git's own files in Changes, which snapfs computed for these plans and allow approves.
	gitFiles map[string]bool
}

// Begin merges the selected changes of a sandbox and plans their promotion. Until the caller calls done, the sandbox
// is locked and its processes frozen.
func (rc *Reconciler) Begin(ctx context.Context, name string, o PlanOptions, a Answers) (c *Promotion, done func(), err error) {
	return rc.beginAt(ctx, catalog.AtPromotion, name, o, a)
}

// beginAt plans a promotion as Begin does, after the automatic snapshot that the policy wants at a key point, if any.
func (rc *Reconciler) beginAt(ctx context.Context, point, name string, o PlanOptions, a Answers) (c *Promotion, done func(), err error) {
	h, err := rc.supervise.HoldAny(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	rc.keyPoints.Take(ctx, h, rc.supervise.SealAll, catalog.Why{Point: point, When: keypoint.Before})
	thaw, err := rc.freezeFor(ctx, h, o)
	if err != nil {
		h.Release()
		return nil, nil, err
	}
	c, end, err := rc.begin(ctx, h.Record, o, a)
	c.held = h
	done = func() {
		end()
		thaw()
		h.Release()
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return c, done, nil
}

// begin merges the selected changes of a sandbox whose lock the caller holds and whose processes are frozen. The
// caller calls done also after an error.
func (rc *Reconciler) begin(ctx context.Context, rec *catalog.Record, o PlanOptions, a Answers) (c *Promotion, done func(), err error) {
	listed := rc.baseline.Record(ctx, rec)
	c = &Promotion{Rec: rec, Plan: &Plan{
		Format: 1, Sandbox: rec.Name, Target: rec.Workspace, Made: time.Now(),
		Steps: []Step{}, Conflicts: []Conflict{}, NeedsApproval: []ApprovalPath{},
	}}
	from := rec
	if o.Files != "" {
		if from, err = rc.cat.Get(o.Files); err != nil {
			return c, func() {}, err
		}
		listed = nil // the paths of another sandbox
	}
	changes, err := rc.compare.ChangesAt(ctx, from, "", "", listed)
	done = func() {
		for _, p := range c.Parts {
			for _, r := range p.repos {
				r.Close()
			}
			p.close()
		}
		if changes != nil {
			changes.Close()
		}
	}
	if err == nil {
		err = rc.merge(ctx, c, changes, o, a)
	}
	return c, done, err
}

// merge merges the sandbox's selected changes with the real tree, and adds them and the conflicts to c.
func (rc *Reconciler) merge(ctx context.Context, c *Promotion, changes *compare.Changes, o PlanOptions, a Answers) error {
	if o.Target != "" {
		target, err := filepath.EvalSymlinks(o.Target)
		if err != nil || !filepath.IsAbs(o.Target) {
			return &errs.Error{Op: "opening the target", Path: o.Target, Kind: errs.ErrNotFound, Err: errors.New("no such directory")}
		}
		c.Plan.Target, o.Target = target, target
	}
	only, err := compare.Selection(c.Rec, o.Only)
	if err != nil {
		return err
	}
	allowed, err := compare.PatternsOf(c.Rec.Workspace, o.Allow.Paths)
	if err != nil {
		return err
	}
	unresolved, err := rc.unresolved(ctx, c.Rec, changes)
	if err != nil {
		return err
	}
	a.failed = new(error)
	request := mergeRequest{rec: c.Rec, target: o.Target, choose: a.choose(ctx, c.Rec), failed: a.failed, promotes: true}
	if request.target == c.Rec.Workspace {
		request.target = ""
	}
	if request.target != "" {
		err = rc.compare.AddPromoted(ctx, c.Rec, changes, o.Target, o.Also)
	} else {
		request.renamed, err = rc.compare.AddRenamed(ctx, c.Rec, changes)
	}
	if err != nil {
		return err
	}
	c.Plan.Left = only.Left(changes.Parts)
	if err := rc.mergeParts(ctx, c, request, changes.Parts, only, o); err != nil || o.Git.FilesStay() {
		return err
	}
	if len(unresolved) > 0 {
		promoted := compare.Places{}
		for _, p := range c.Parts {
			promoted.Add(&p.Part, p.Changes)
		}
		for _, u := range unresolved {
			if slices.ContainsFunc(u.places(), only.Matches) || promoted.At(u.places(), u.alone) != nil {
				c.Plan.Conflicts = append(c.Plan.Conflicts, u)
			}
		}
	}
	slices.SortStableFunc(c.Plan.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	if len(o.Only)+len(o.Allow.Paths) == 0 {
		return nil
	}
	return rc.unmatched(c, changes, o.Drift, only, allowed)
}

// unmatched returns an error for patterns in only or allowed that match no change of the sandbox. Changes promoted
// before match, too: where the base is the real tree, they are no changes any more. drift tells promote from apply.
func (rc *Reconciler) unmatched(c *Promotion, changes *compare.Changes, drift Drift, only, allowed *compare.Patterns) error {
	all := func() error { return errors.Join(only.Unmatched(drift.option()), allowed.Unmatched("--allow")) }
	for _, p := range changes.Parts {
		for i := range p.Changes {
			only.Matches(filepath.Join(p.Root, p.Changes[i].Path))
			allowed.Matches(filepath.Join(p.Root, p.Changes[i].Path))
		}
	}
	if all() == nil {
		return nil
	}
	k, err := rc.baseline.Read(c.Rec)
	if err != nil {
		return err
	}
	if c.Plan.Target != c.Rec.Workspace {
		k.In(c.Rec.Workspace, c.Plan.Target)
	}
	for abs, n := range k.Nodes {
		if n.Promoted {
			only.Matches(abs)
			allowed.Matches(abs)
		}
	}
	return all()
}

// mergeParts merges the selected changes, directory by directory, and plans how commits are promoted.
func (rc *Reconciler) mergeParts(ctx context.Context, c *Promotion, request mergeRequest, all []compare.Part, only *compare.Patterns, o PlanOptions) error {
	parts, repos, err := rc.gitParts(c, all, o)
	if err != nil {
		return err
	}
	for i, p := range parts {
		if only.Ruled && !o.Git.FilesStay() {
			repos[i] = nil
		}
		p, ok := only.Part(p, &c.Plan.Elsewhere)
		if !ok {
			p.Changes = nil
		}
		if ok || len(repos[i]) > 0 {
			if err := rc.mergeOne(ctx, c, request, p, only, o); err != nil {
				return err
			}
			if err := rc.planGit(c, c.Parts[len(c.Parts)-1], repos[i], o); err != nil {
				return err
			}
		}
	}
	return c.checkGit(o.Git)
}

// mergeOne merges the changes in one directory, p, and adds the selected ones to c.Parts. To the plan it adds the
// conflicts and the changes that need approval.
func (rc *Reconciler) mergeOne(ctx context.Context, c *Promotion, r mergeRequest, p compare.Part, only *compare.Patterns, o PlanOptions) error {
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
	if o.Drift == RefuseDrift {
		c.Plan.Conflicts = append(c.Plan.Conflicts, part.drifted()...)
	}
	already, err := part.alreadyThere(ctx, only)
	if err != nil {
		return err
	}
	c.Plan.already = append(c.Plan.already, already...)
	selected := part.Changes
	part.Changes = c.dropSockets(m.path, part.Changes)
	part.allow = o.Allow
	if m.path != p.Root { // patterns of the workspace mean the same in every target
		part.allow.Paths = each(o.Allow.Paths, func(path string) string {
			if hostfs.Within(path, p.Root) {
				return hostfs.Relative(path, p.Root)
			}
			return path
		})
	}
	check := part.allow.Checker(part.Source().At, m.path).Before(m.real, p.Old)
	check.Add(part.Changes)
	for i := range selected {
		check.AddKind(&selected[i]) // a socket that replaced a file
	}
	if needed := check.Needed(); needed != nil {
		c.Plan.needApproval(part, needed)
	}
	return c.checkLabels(rc.cat.Path(c.Rec.Name), part, o.Allow.Private)
}

// withoutTimeOnly drops changes of only a directory's time, unless something in the directory changes.
func withoutTimeOnly(changes []diff.Change) []diff.Change {
	changed := map[string]bool{}
	for _, c := range changes {
		if !c.TimeOnly() {
			for dir := filepath.Dir(c.Path); !changed[dir]; dir = filepath.Dir(dir) {
				changed[dir] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c diff.Change) bool { return c.TimeOnly() && !changed[c.Path] })
}

// dropSockets removes sockets from the changes, because only their server can create one, and lists them in the plan,
// below root. A file that a socket has replaced is still deleted.
func (c *Promotion) dropSockets(root string, changes []diff.Change) (rest []diff.Change) {
	for _, ch := range changes {
		if ch.New != nil && ch.New.Mode&fs.ModeSocket != 0 {
			c.Plan.Skipped = append(c.Plan.Skipped, filepath.Join(root, ch.Path))
			if ch.Old == nil || ch.Old.Mode&fs.ModeSocket != 0 {
				continue
			}
			ch.Kind, ch.New, ch.What = diff.Deleted, nil, 0 // the replaced file is still deleted
		}
		rest = append(rest, ch)
	}
	return rest
}
