package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A Request says what sandbox is wanted. Its zero value but for Workspace is
// the strict default.
type Request struct {
	// Name, or "" for one made from the workspace's.
	Name string
	// Workspace is the directory that commands start in: absolute.
	Workspace string
	// Backend is a driver's name, or "" for the best that works.
	Backend string
	// Frozen: only backends whose base keeps still will do.
	Frozen bool
	// Policy is what its processes may see and do.
	Policy catalog.Policy
	// Admission says whether it waits for room.
	Admission admission.Options

	limitAt string // where its disk's limit is to be counted: see choose
	// fill makes its forks what they are to be, however long that takes, before anybody sees
	// it; may be nil. It is called once at most.
	fill func(ctx context.Context, rec *catalog.Record) error
}

// New makes a sandbox to keep. Atomic: after an error, or a crash, there is
// none. Cost: constant in the size of the trees; see the backends.
// Errors: errs.ErrExists (the name), ErrNotFound and ErrNotSupported (the
// workspace), ErrNoSpace, ErrDenied; admission.ErrNoRoom.
func (e *Engine) New(ctx context.Context, req Request) (*catalog.Record, error) {
	place, err := e.admitNew(ctx, req)
	if err != nil {
		return nil, err
	}
	defer e.giveBack(place) // nothing runs in it yet
	rec, intent, err := e.create(ctx, req, false)
	if err != nil {
		return nil, err
	}
	e.end(intent)
	return rec, nil
}

// end ends an intent whose work is done. Where that fails, the next command
// finds nothing to mend, and ends it.
func (e *Engine) end(i *catalog.Intent) {
	if err := i.End(); err != nil {
		e.notice("done, but the note of it stays: " + err.Error())
	}
}

// create intends a sandbox and makes it. An ephemeral one stays covered by its
// intent, which the caller ends when it is gone or kept.
func (e *Engine) create(ctx context.Context, req Request, ephemeral bool) (*catalog.Record, *catalog.Intent, error) {
	rec, intent, err := e.intend(req, ephemeral)
	if err != nil {
		return nil, nil, err
	}
	if err := e.make(ctx, req, rec); err != nil {
		e.endIfGone(intent, rec, err)
		return nil, nil, err
	}
	return rec, intent, nil
}

// intend begins a sandbox: whatever is made for it from now on, the next command
// takes away if this process is killed. The caller ends the intent.
func (e *Engine) intend(req Request, ephemeral bool) (*catalog.Record, *catalog.Intent, error) {
	rec := e.newRecord(req, ephemeral)
	intent, err := e.cat.Begin(catalog.Making, rec.Name, rec.ID)
	return rec, intent, err
}

// make makes a sandbox that was intended. Where filesystems are mounted or
// unmounted meanwhile, so that the machine has other trees, it tries again; not once it
// fills the forks, which may use up what they are filled from. After an error there is none,
// as a rule; see [Engine.endIfGone].
func (e *Engine) make(ctx context.Context, req Request, rec *catalog.Record) error {
	if err := errors.Join(limitsFit(req.Policy.Limits), timesFit(req.Policy.Limits), e.checkWorkspace(req.Workspace)); err != nil {
		return err
	}
	filling := false
	if fill := req.fill; fill != nil {
		req.fill = func(ctx context.Context, rec *catalog.Record) error {
			filling = true
			return fill(ctx, rec)
		}
	}
	var tries attempts
	defer tries.close()
	for {
		env, err := survey(req.Workspace, e.cat.Dir(), privileged())
		if err == nil {
			err = e.makeIn(ctx, env, req, rec)
		}
		if err == nil || filling || !tries.again(err) {
			return err
		}
	}
}

func (e *Engine) makeIn(ctx context.Context, env *environment, req Request, rec *catalog.Record) error {
	choices, err := e.choose(ctx, env, req)
	if err == nil {
		err = e.weigh(ctx, choices)
	}
	if err != nil {
		return err
	}
	rec.Trees = nil
	for _, c := range choices {
		rec.Trees = append(rec.Trees, catalog.Tree{
			Path: c.tree, Driver: c.driver, Reason: c.reason,
			Base: rec.NewSnapshot(), Fork: rec.NewFork(),
		})
		e.keepOpen(c)
		if err := e.rememberPlace(c); err != nil {
			return err
		}
	}
	return e.register(ctx, rec, func() error { return e.growAll(ctx, rec, choices) }, req.fill)
}

func (e *Engine) newRecord(req Request, ephemeral bool) *catalog.Record {
	rec := &catalog.Record{
		ID: catalog.NewID(), Name: req.Name, State: catalog.Creating, Created: time.Now(),
		Workspace: req.Workspace, Ephemeral: ephemeral, Policy: req.Policy,
	}
	if !ephemeral || req.Policy.Limits.Timed() {
		rec.Note(catalog.Now())
	}
	if rec.Name == "" {
		rec.Name = catalog.NameFor(req.Workspace, rec.ID)
	}
	return rec
}

// register claims the name of a sandbox that was intended, runs grow, which makes
// its forks, and fill where it is not nil, and marks it ready. When anything fails, nothing
// stays. Nothing is collected while grow runs, which finds its bases; from then on the record
// says what it refers to, so that nobody waits for fill.
func (e *Engine) register(ctx context.Context, rec *catalog.Record, grow func() error, fill func(context.Context, *catalog.Record) error) error {
	if err := e.cat.Create(rec); err != nil {
		return err
	}
	release, err := e.cat.Share()
	if err == nil {
		defer release() // twice is harmless
		if !rec.Ephemeral {
			err = e.makeTmp(rec)
		}
	}
	if err == nil {
		err = grow()
	}
	if err == nil && fill != nil {
		if err = e.cat.Update(rec); err == nil {
			release()
			err = fill(ctx, rec)
		}
	}
	if err == nil {
		rec.State = catalog.Ready
		if !rec.Ephemeral {
			err = e.cat.NoteEnd(rec, catalog.Now())
		}
	}
	if err == nil {
		if !rec.Ephemeral || e.sharesBase(rec) {
			err = e.cat.Update(rec)
		}
	}
	if err != nil {
		release() // collecting excludes
		return errors.Join(err, e.discard(context.WithoutCancel(ctx), rec))
	}
	return nil
}

// makeTmp makes the directory behind a kept sandbox's /tmp.
func (e *Engine) makeTmp(rec *catalog.Record) error {
	dir := e.tmp(rec)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky) // as /tmp is, whatever the umask
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return &errs.Error{Op: "making", Path: dir, Kind: errs.KindOf(err), Err: err}
	}
	return nil
}

// growAll forks every tree, all at once: those that wait for a disk wait
// together, and those that can be had at one instant are. A tree that has vanished since it was listed, or got something
// mounted in it that forbids an overlay, is left out, unless the workspace is
// in it.
func (e *Engine) growAll(ctx context.Context, rec *catalog.Record, choices []choice) error {
	failures := make([]error, len(choices))
	var wg sync.WaitGroup
	for _, group := range together(choices) {
		if first := group[0]; len(choices) == 1 || len(group) == 1 && !choices[first].backend.Facts().Flushes {
			failures[first] = grow(ctx, choices[first].backend, rec, &rec.Trees[first])
			continue
		}
		wg.Go(func() { e.growTogether(ctx, rec, choices, group, failures) })
	}
	wg.Wait()
	var there []catalog.Tree
	for i, t := range rec.Trees {
		passing := errors.Is(failures[i], errs.ErrNotFound) || errors.Is(failures[i], errs.ErrNotSupported)
		if passing && !within(rec.Workspace, t.Path) {
			failures[i] = nil
			continue
		}
		there = append(there, t)
	}
	rec.Trees = there
	return errors.Join(failures...)
}

// together are the choices, by index, in groups of those that can be had at one instant.
func together(choices []choice) (groups [][]int) {
	at := map[string]int{}
	for i, c := range choices {
		if t, ok := c.backend.(snapshot.Together); ok && len(choices) > 1 {
			instant, err := t.Instant(snapshot.Tree{Path: c.tree})
			if g, known := at[instant]; known {
				groups[g] = append(groups[g], i)
				continue
			}
			if err == nil {
				at[instant] = len(groups)
			}
		}
		groups = append(groups, []int{i})
	}
	return groups
}

// growTogether forks the trees of a group as they are at one instant, or one by one where they
// cannot be had so, which it says.
func (e *Engine) growTogether(ctx context.Context, rec *catalog.Record, choices []choice, group []int, failures []error) {
	var trees []snapshot.Cloning
	for _, i := range group {
		t := &rec.Trees[i]
		trees = append(trees, snapshot.Cloning{Tree: snapshot.Tree{Path: t.Path}, ID: t.Base, Fork: t.Fork})
	}
	b, ok := choices[group[0]].backend.(snapshot.Together)
	var bases []snapshot.Snapshot
	err := errs.ErrNotSupported
	if ok && len(group) > 1 {
		if bases, err = b.CloneTogether(ctx, trees); errors.Is(err, errs.ErrNotSupported) {
			e.notice("not of one instant: " + paths(trees) + ": " + err.Error())
		}
	}
	for n, i := range group {
		switch {
		case err == nil:
			failures[i] = hold(ctx, choices[i].backend, rec, &rec.Trees[i], bases[n])
		case errors.Is(err, errs.ErrNotSupported):
			failures[i] = grow(ctx, choices[i].backend, rec, &rec.Trees[i])
		default:
			failures[i] = err
		}
	}
}

func paths(trees []snapshot.Cloning) string {
	var all []string
	for _, t := range trees {
		all = append(all, t.Tree.Path)
	}
	return strings.Join(all, ", ")
}

// grow captures a tree and forks the capture, which is held to its limits.
func grow(ctx context.Context, b snapshot.Backend, rec *catalog.Record, t *catalog.Tree) error {
	var base snapshot.Snapshot
	var err error
	if c, ok := b.(snapshot.Cloner); ok {
		base, _, err = c.Clone(ctx, snapshot.Tree{Path: t.Path}, t.Base, t.Fork)
	} else if base, err = b.Capture(ctx, snapshot.Tree{Path: t.Path}, t.Base); err == nil {
		_, err = b.Fork(ctx, base.ID, t.Fork)
	}
	if err != nil {
		return err
	}
	return hold(ctx, b, rec, t, base)
}

// hold notes the base of a tree whose fork is there, and holds that to its limits.
func hold(ctx context.Context, b snapshot.Backend, rec *catalog.Record, t *catalog.Tree, base snapshot.Snapshot) error {
	if limitsDisk(rec.Policy.Limits) {
		if err := limitFork(ctx, b, t.Fork, rec.ID, rec.Policy.Limits); err != nil {
			return err
		}
	}
	t.Base, t.Taken, t.Frozen = base.ID, base.Taken, base.Frozen
	return nil
}

// sharesBase: a base of rec was captured for another sandbox.
func (e *Engine) sharesBase(rec *catalog.Record) bool {
	for _, t := range rec.Trees {
		if !rec.Owns(t.Base) {
			return true
		}
	}
	return false
}

// rememberPlace: a backend that keeps its data apart must be found when no
// sandbox refers to it any more.
func (e *Engine) rememberPlace(c choice) error {
	if e.apart(c.driver, c.backend) == "" {
		return nil
	}
	return e.cat.AddPlace(catalog.Place{Driver: c.driver, Path: c.tree})
}

// apart is where a backend keeps its data, if that depends on the tree, which may be
// in the state directory all the same, as a pool is. Otherwise it is "".
func (e *Engine) apart(driver string, b snapshot.Backend) string {
	h, ok := b.(snapshot.Hider)
	if !ok {
		return ""
	}
	where := strings.Join(h.Hidden(), "\x00")
	if where == filepath.Clean(e.cat.DataDir(driver)) {
		return ""
	}
	return where
}

func (e *Engine) keepOpen(c choice) {
	e.mu.Lock()
	e.backends[c.driver+" "+c.tree] = c.backend
	e.mu.Unlock()
}

// checkWorkspace refuses what cannot be one.
func (e *Engine) checkWorkspace(dir string) error {
	refuse := func(kind error, why string) error {
		return &errs.Error{Op: "copying", Path: dir, Kind: kind, Err: errors.New(why)}
	}
	real, err := filepath.EvalSymlinks(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return refuse(errs.ErrNotFound, "there is no such directory")
	case err != nil:
		return &errs.Error{Op: "copying", Path: dir, Kind: errs.KindOf(err), Err: err}
	case real != dir:
		return refuse(errs.ErrNotSupported, "it is a symbolic link to "+real)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return &errs.Error{Op: "copying", Path: dir, Kind: errs.KindOf(err), Err: err}
	case !info.IsDir():
		return &errs.Error{
			Op: "copying", Path: dir, Kind: errs.ErrInvalid, Err: errors.New("it is a file, not a directory"),
			Hints: []string{"snapfs run -C " + filepath.Dir(dir) + " -- COMMAND"},
		}
	case within(dir, e.cat.Dir()):
		return refuse(errs.ErrNotSupported, "it lies in snapfs's own state, inside another sandbox")
	}
	for _, d := range []string{"/proc", "/sys", "/dev"} {
		if within(dir, d) {
			return refuse(errs.ErrNotSupported, "a sandbox has its own "+d)
		}
	}
	if dir == "/tmp" || dir == "/run" { // a directory in it is put into the sandbox's
		return &errs.Error{
			Op: "copying", Path: dir, Kind: errs.ErrNotSupported, Err: errors.New("a sandbox has its own " + dir + ", and what it writes there is lost"),
			Hints: []string{"snapfs run -C " + dir + "/DIRECTORY -- COMMAND"},
		}
	}
	return nil
}

// Workspace is the directory that a command in dir is about: the git work tree
// that holds it, else dir itself; without symbolic links.
func Workspace(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return d, nil
		}
	}
	return dir, nil
}
