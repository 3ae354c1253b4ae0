package pick

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Question asks a person whether to promote one file, or one hunk of a text file.
type Question struct {
	// Path is absolute.
	Path string
	// Move is set for what was moved; its paths are relative to the directory Root.
	Move *diff.Rename
	Root string
	// Change is the change of the file.
	Change diff.Change
	// Hunk writes the hunk in question; nil for a question about the whole file.
	Hunk func(w io.Writer) error
	// Number is the number of the hunk among Of hunks, from 1.
	Number, Of int
	// Splits is set if the hunk can be split into smaller ones.
	Splits bool
}

// An Answer is a person's answer to a [Question]: whether to promote a file or hunk.
type Answer int

// The answers to a [Question]. TakeRest and LeaveRest are for this and all later hunks of the file, and Quit
// leaves everything that was not asked yet. Split asks again about the parts of the hunk.
const (
	Leave Answer = iota
	Take
	TakeRest
	LeaveRest
	Split
	Quit
)

// An Asker is a function that asks a person whether to promote a file or hunk, and returns the answer. Its
// errors end the promotion with nothing changed.
type Asker func(q Question) (Answer, error)

// A Result is the result of [Promote], which promotes picked changes: that of the promotion, and how many
// changes were left out.
type Result struct {
	reconcile.Promoted
	// Left is the number of questions whose answer was no.
	Left int
	// Picked is false if nothing was picked. Then nothing was promoted.
	Picked bool
}

// forkLives is the age at which snapfs removes the fork from which picked changes are promoted, in case the
// command is killed.
const forkLives = time.Hour

// Promote asks about each change of the sandbox called name that o.Only selects, or of its workspace, and
// promotes the picked ones as [reconcile.Reconciler.Promote] does. Without o.DryRun, picked changes are then
// no longer changes of the sandbox; the others stay. Commits stay in the sandbox: their files are promoted as
// changes.
//
// Errors: those of ask and of Reconciler.Promote. After any error the real tree and the sandbox are
// unchanged. After a kill, a fork of the sandbox stays for an hour.
func Promote(ctx context.Context, e *engine.Engine, name string, o reconcile.PromoteOptions, ask Asker) (Result, error) {
	return promotePicked(ctx, e, name, o, ask, func() error { return nil })
}

// promotePicked does what [Promote] does, unless check, which it calls after the last question, returns an
// error.
func promotePicked(ctx context.Context, e *engine.Engine, name string, o reconcile.PromoteOptions, ask Asker, check func() error) (r Result, err error) {
	err = picking(ctx, e, name, o.Only, ask, func(p *picker) error {
		if err := check(); err != nil {
			return err
		}
		if r.Left, r.Picked = p.left, len(p.picked) > 0; !r.Picked {
			return nil
		}
		o.Only, o.Files = p.picked, p.fork.Name
		if r.Promoted, err = e.Reconcile.Promote(ctx, name, o); err != nil || o.DryRun {
			return err
		}
		if err := p.recognise(context.WithoutCancel(ctx)); err != nil {
			e.Notice("promoted, but the sandbox's baseline was not updated: " + err.Error())
		}
		return nil
	})
	return r, err
}

// picking asks the person about each change of the sandbox called name that the patterns of selected select,
// and calls do with the answers. Meanwhile the picked changes are in a fork of the sandbox, which it removes.
// Errors: those of ask and of do.
func picking(ctx context.Context, e *engine.Engine, name string, selected []string, ask Asker, do func(p *picker) error) (err error) {
	rec, fork, err := forkOf(ctx, e, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Remove(context.WithoutCancel(ctx), fork.Name)) }()
	changes, err := e.Compare.Changes(ctx, fork)
	if err != nil {
		return err
	}
	defer changes.Close()
	p := &picker{e: e, rec: rec, fork: fork, forked: time.Now(), ask: ask}
	if p.base, err = e.Baseline.Read(fork); err != nil {
		return err
	}
	for _, problem := range changes.FindCommits() {
		e.Notice(problem)
	}
	if err := changes.FindRenames(ctx); err != nil {
		return err
	}
	only, err := compare.PatternsOf(fork.Workspace, selected)
	if err != nil {
		return err
	}
	for _, part := range changes.Parts {
		part, ok := only.Part(part, new(int))
		if !ok {
			continue
		}
		part.Changes = only.Pick(part.Root, part.Changes)
		if err := p.part(ctx, part); err != nil {
			return err
		}
	}
	if err := only.Unmatched("--only"); err != nil {
		return err
	}
	return do(p)
}

// forkOf makes a fork of the sandbox called name, from which the picked changes are promoted, and returns the
// catalogue's records of both. It first stores the originals, the contents before the sandbox's changes, so
// that hunks can be shown.
func forkOf(ctx context.Context, e *engine.Engine, name string) (rec, fork *catalog.Record, err error) {
	h, err := e.Supervise.HoldAny(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	e.Baseline.Record(ctx, h.Record)
	h.Release()
	if fork, err = e.Fork(ctx, name, "", ""); err != nil {
		return nil, nil, err
	}
	if rec, err = e.Catalog().Get(name); err != nil {
		return nil, nil, errors.Join(err, e.Remove(context.WithoutCancel(ctx), fork.Name))
	}
	_, err = e.Supervise.SetLimits(ctx, fork.Name, func(l *engine.Limits) error {
		l.TTL, l.Idle, l.RemoveAfter, l.KeepEnd = 0, 0, forkLives, false
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, e.Remove(context.WithoutCancel(ctx), fork.Name))
	}
	return rec, fork, nil
}

// A picker shows a person the changes of one sandbox one by one and collects the answers which to promote,
// for [Promote].
type picker struct {
	e      *engine.Engine
	rec    *catalog.Record // the sandbox
	fork   *catalog.Record
	forked time.Time // when the fork was complete
	ask    Asker
	base   *baseline.Baseline
	picked []string // patterns for [reconcile.PlanOptions]
	left   int
	over   bool // the answer was Quit
}

// part asks the person about the changes in one directory tree of the sandbox, such as the workspace. It
// writes texts of which the person picked only some hunks to the fork.
func (p *picker) part(ctx context.Context, part compare.Part) error {
	base, err := p.mergeBase(part)
	if err != nil {
		return err
	}
	defer base.Frozen.Close()
	if base.Live != nil {
		defer base.Live.Real.Root.Close()
	}
	moved, within := movesOf(part)
	texts := map[string][]byte{}
	for _, c := range part.Changes {
		move := moved[c.Path]
		if p.over || within.covers(c.Path) || c.TimeOnly() || move == nil && isParent(c, part.Changes) {
			continue
		}
		now, err := sinceBase(ctx, &c, base, part.New)
		if err != nil {
			return err
		}
		if now == nil || now.TimeOnly() {
			continue // it was promoted before
		}
		if now.Kind != diff.Added {
			move = nil
		}
		if err := p.pick(part, now, move, base, within, texts); err != nil {
			return err
		}
	}
	return p.write(ctx, part, texts)
}

// pick asks the user whether to promote the change c, or the move, and adds its path to p.picked if so. A
// text of which only some hunks were picked is stored in texts. The path of a directory whose answer is for
// everything in it is added to within.
func (p *picker) pick(part compare.Part, c *diff.Change, move *diff.Rename, base *baseline.MergeBase, within places, texts map[string][]byte) error {
	dir := c.Old != nil && c.Old.Mode.IsDir()
	if dir && c.Kind == diff.Modified && c.What&diff.Type == 0 {
		p.e.Notice(filepath.Join(part.Root, c.Path) + " itself is not picked: snapfs promote --only carries its metadata with all that is in it")
		return nil
	}
	taken, text, err := p.file(part.Root, c, move, textOf(c, base, part.New))
	if err != nil {
		return err
	}
	if text != nil {
		texts[c.Path] = text
	}
	if taken {
		p.picked = append(p.picked, pattern(part.Root, c.Path))
	}
	if taken && move != nil {
		p.picked = append(p.picked, pattern(part.Root, move.From))
	}
	if move != nil || dir {
		within[c.Path] = true
	}
	return nil
}

// mergeBase opens the common state of the sandbox and the real tree. The hunks that a person picks from are
// differences to that state. The caller closes Frozen, and the root of Live if it is set.
func (p *picker) mergeBase(part compare.Part) (*baseline.MergeBase, error) {
	base := &baseline.MergeBase{Root: part.Root, Baseline: p.base, Frozen: baseline.RootedReader{Root: part.Old}}
	if part.Frozen {
		return base, nil
	}
	known, err := p.e.Baseline.Stamps(p.rec.Name)
	if err != nil {
		return nil, err
	}
	real, err := baseline.OpenRoot(part.Root)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(p.rec.Trees, func(t catalog.Tree) bool { return t.Path == part.Tree })
	base.Live = &baseline.LiveBase{
		Real: baseline.RootedReader{Root: real}, Since: p.e.Baseline.Since(p.rec, &p.rec.Trees[i]), Known: known.In(part.Root),
		OpenFork: func() (*os.File, error) { return part.New, nil },
	}
	return base, nil
}

// sinceBase returns how the sandbox's file at c.Path, in tree, differs from the version in base, the common
// state of the sandbox and the real tree; nil for no difference. If that version is not known it returns c.
func sinceBase(ctx context.Context, c *diff.Change, base *baseline.MergeBase, tree *os.File) (*diff.Change, error) {
	old, _, why, err := base.At(c.Path)
	if err != nil || why != "" {
		return c, err
	}
	return base.Between(ctx, c.Path, old, c.New, tree)
}

// file asks the person about one changed file, or the hunks of its text, in the tree root. It returns whether
// anything of it was picked, and as partly the new text of the file if only some hunks were.
func (p *picker) file(root string, c *diff.Change, move *diff.Rename, text *patch.Text) (taken bool, partly []byte, err error) {
	if text != nil {
		some, all, err := p.hunks(root, c, text)
		if err != nil || len(some) == 0 || all {
			return len(some) > 0, nil, err
		}
		return true, text.With(func(i int) bool { return some[i] }), nil
	}
	answer, err := p.ask(Question{Path: filepath.Join(root, c.Path), Root: root, Change: *c, Move: move, Number: 1, Of: 1})
	p.over = answer == Quit
	if taken = answer == Take || answer == TakeRest; !taken {
		p.left++
	}
	return taken, nil, err
}

// hunks asks a person about the hunks of a changed text in the tree root. It returns the picked changes of
// lines, by their index, and whether these are all.
func (p *picker) hunks(root string, c *diff.Change, text *patch.Text) (taken map[int]bool, all bool, err error) {
	abs := filepath.Join(root, c.Path)
	taken, all = map[int]bool{}, true
	queue := text.Hunks()
	rest := Split // the answer for the rest of the file, once there is one
	for i := 0; i < len(queue); i++ {
		h, answer := queue[i], rest
		if rest == Split {
			answer, err = p.ask(Question{
				Path: abs, Root: root, Change: *c, Number: i + 1, Of: len(queue), Splits: h.Last > h.First,
				Hunk: func(w io.Writer) error { return text.WriteHunk(w, h) },
			})
			if err != nil {
				return nil, false, err
			}
		}
		switch answer {
		case Split:
			var parts []patch.Range
			for n := h.First; n <= h.Last; n++ {
				parts = append(parts, patch.Range{First: n, Last: n})
			}
			queue = slices.Replace(queue, i, i+1, parts...)
			i--
			continue
		case TakeRest:
			rest = Take
		case LeaveRest:
			rest = Leave
		case Quit:
			rest, p.over = Leave, true
		case Take, Leave:
		}
		if answer != Take && answer != TakeRest {
			p.left++
			all = false
			continue
		}
		for n := h.First; n <= h.Last; n++ {
			taken[n] = true
		}
	}
	return taken, all, nil
}

// write writes texts, by path, to the files of the fork, so that these have only the picked hunks. The files
// retain their mode and owner.
func (p *picker) write(ctx context.Context, part compare.Part, texts map[string][]byte) (err error) {
	if len(texts) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp(p.e.Catalog().Path(p.fork.Name), "picked-")
	if err != nil {
		return errs.With("creating the scratch directory", p.e.StateDir(), err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	now := baseline.RootedReader{Root: part.New}
	defer now.Close()
	source := promote.Source{Tree: part.New, In: map[string]bool{}}
	var changes []diff.Change
	for path, text := range texts {
		at := filepath.Join(dir, path)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, text, 0o600)); err != nil {
			return errs.With("writing", at, err)
		}
		n, err := now.Node(path)
		if err != nil || n == nil {
			return errs.Wrap("reading", filepath.Join(part.Root, path), errors.Join(err, errs.ErrNotFound))
		}
		n.Size, n.MTime, n.LinkOf, n.NLink = int64(len(text)), time.Now(), "", 1
		source.In[path] = true
		changes = append(changes, diff.Change{Path: path, Kind: diff.Added, New: n})
	}
	baseline.SortChanges(changes)
	if source.Built, err = baseline.OpenRoot(dir); err != nil {
		return err
	}
	defer source.Built.Close()
	i := slices.IndexFunc(p.fork.Trees, func(t catalog.Tree) bool { return t.Path == part.Tree })
	fork, err := p.e.Reconcile.OpenFork(ctx, p.fork.Trees[i], part.Root)
	if err != nil {
		return err
	}
	defer fork.Close()
	if err := promote.Replay(ctx, fork.Dir, source, changes); err != nil {
		return err
	}
	return fork.Sync(ctx)
}

// recognise updates the baseline of the sandbox (what is known of the real files it started from) after a
// promotion from its fork: it replaces the fork's copies by the sandbox's own files as those that were
// promoted. The baseline recognises files that are not small texts by their inode and change time.
func (p *picker) recognise(ctx context.Context) error {
	changes, err := p.e.Compare.Changes(ctx, p.rec)
	if err != nil {
		return err
	}
	defer changes.Close()
	return p.e.Baseline.Update(ctx, p.rec, func(k *baseline.Baseline) error {
		for _, part := range changes.Parts {
			for _, c := range part.Changes {
				abs := filepath.Join(part.Root, c.Path)
				n, ok := k.Nodes[abs]
				if !ok || !n.Promoted || n.Data != "" || n.Node == nil || c.New == nil || !vfs.ChangedBefore(c.New.CTime, p.forked) ||
					n.Node.Mode != c.New.Mode || n.Node.Size != c.New.Size || !n.Node.MTime.Equal(c.New.MTime) {
					continue // among others, a file that was written to since the fork
				}
				node := *n.Node
				node.Ino, node.CTime = c.New.Ino, c.New.CTime
				n.Node = &node
				k.Set(abs, n)
			}
		}
		return nil
	})
}

// textOf returns the line-by-line comparison of a changed text file, in tree, with the version in base, so
// that a person can pick hunks. It returns nil for a change about which there is one question: one that is
// not only of the content of a text, or of a file with several names.
func textOf(c *diff.Change, base *baseline.MergeBase, tree *os.File) *patch.Text {
	if c.Kind != diff.Modified || c.What&diff.Content == 0 || c.What&diff.Type != 0 || !c.New.Mode.IsRegular() ||
		c.New.NLink > 1 || c.Old.Size > patch.TextMax || c.New.Size > patch.TextMax {
		return nil
	}
	old, err := base.Open(c.Path)
	if err != nil {
		return nil // its original is not known any more
	}
	defer old.Close()
	mine := baseline.RootedReader{Root: tree}
	defer mine.Close()
	new, err := mine.Open(c.Path)
	if err != nil {
		return nil
	}
	defer new.Close()
	a, err := io.ReadAll(io.LimitReader(old, patch.TextMax+1))
	b, err2 := io.ReadAll(io.LimitReader(new, patch.TextMax+1))
	if err != nil || err2 != nil || len(a) > patch.TextMax || len(b) > patch.TextMax || diff.IsBinary(a) || diff.IsBinary(b) {
		return nil
	}
	return patch.CompareTexts(a, b)
}

// places is a set of paths of files and directories that the user has answered about; each stands for
// everything below it, too.
type places map[string]bool

func (p places) covers(path string) bool {
	for dir := path; dir != "."; dir = filepath.Dir(dir) {
		if p[dir] {
			return true
		}
	}
	return false
}

// movesOf returns the moved files and directories of a part, such as the workspace, by their new paths, and
// their old paths. A person gets one question for both.
func movesOf(part compare.Part) (moved map[string]*diff.Rename, within places) {
	moved, within = map[string]*diff.Rename{}, places{}
	listed := map[string]bool{}
	for _, c := range part.Changes {
		listed[c.Path] = true
	}
	for _, r := range part.Renames {
		if listed[r.From] && listed[r.To] {
			moved[r.To] = &r
			within[r.From] = true
		}
	}
	return moved, within
}

// isParent reports whether the change c creates a directory in which other changes of all create files. The
// user is not asked about it, since those files need it.
func isParent(c diff.Change, all []diff.Change) bool {
	return c.New != nil && c.New.Mode.IsDir() && (c.Old == nil || !c.Old.Mode.IsDir()) && slices.ContainsFunc(all, func(o diff.Change) bool {
		return strings.HasPrefix(o.Path, c.Path+"/")
	})
}

// pattern returns the pattern of package pathlist that matches only the path path in root, and what lies
// below it: wildcards in the name are escaped.
func pattern(root, path string) string {
	return filepath.Join(root, strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path))
}
