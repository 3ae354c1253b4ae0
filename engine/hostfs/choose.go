package hostfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
)

// A Candidate is a tree of a wanted sandbox with the backend that would hold it. Hints are commands that
// would make a better backend available.
type Candidate struct {
	catalog.Tree
	Hints []string
}

// Backends returns for each tree of a wanted sandbox the backend that would hold it, with the reason. It
// creates nothing. Errors: those of creating the sandbox.
func (hf *Host) Backends(ctx context.Context, req Request) ([]Candidate, error) {
	if err := hf.CheckWorkspace(req.Workspace); err != nil {
		return nil, err
	}
	env, err := Survey(req.Workspace, hf.cat.Dir(), Privileged())
	if err != nil {
		return nil, err
	}
	choices, err := hf.Choose(ctx, env, req)
	trees := make([]Candidate, 0, len(choices))
	for _, c := range choices {
		t := catalog.Tree{Path: c.Tree, Driver: c.Driver, Reason: c.Reason, Frozen: c.Backend.Facts().Frozen}
		trees = append(trees, Candidate{t, c.hints})
	}
	return trees, err
}

// A Choice is a tree of a new sandbox with the backend that will hold it. [Host.Choose] makes it.
type Choice struct {
	Tree    string
	Driver  string
	Reason  string
	Backend snapshot.Backend
	hints   []string // of the driver in the reason
}

// Choose finds a backend for each tree of env. A disk limit applies to all trees together, so with one it
// chooses backends that count the used space in one place. Errors: errs.ErrNotSupported; errs.ErrInvalid for a policy
// that exposes the file of one of its secrets.
func (hf *Host) Choose(ctx context.Context, env *Environment, req Request) ([]Choice, error) {
	if err := checkExposed(req.Policy); err != nil {
		return nil, err
	}
	first, err := hf.chooseEach(ctx, env, req)
	if err != nil || !LimitsDisk(req.Policy.Limits) || len(first) < 2 || oneLimitPlace(first) {
		return first, err
	}
	req.limitAt = anyPlace
	shared, err := hf.chooseEach(ctx, env, req)
	if err == nil && oneLimitPlace(shared) {
		return shared, nil
	}
	where := make([]string, 0, len(first))
	for _, c := range slices.Concat(shared, first) {
		req.limitAt = LimitPlace(c.Backend)
		if req.limitAt != "" {
			if again, err := hf.chooseEach(ctx, env, req); err == nil {
				return again, nil
			}
		}
		where = append(where, c.Tree+" by "+c.Driver)
	}
	return nil, &errs.Error{
		Op: "choosing a backend", Path: req.Workspace, Kind: errs.ErrNotSupported,
		Err:   errors.New("no backends share one disk limit for all trees: " + strings.Join(where[len(shared):], ", ")),
		Hints: []string{"snapfs pool create", "snapfs doctor"},
	}
}

// anyPlace is a value of Request.limitAt, which names the pool or filesystem in which a backend must count the
// sandbox's disk limit. With it any is accepted; the caller then checks that all backends share one.
const anyPlace = "any"

// oneLimitPlace reports whether all chosen backends count the space that a sandbox uses in one pool or
// filesystem, so that one disk limit can apply to all.
func oneLimitPlace(chosen []Choice) bool {
	for _, c := range chosen {
		if at := LimitPlace(c.Backend); at == "" || at != LimitPlace(chosen[0].Backend) {
			return false
		}
	}
	return true
}

// LimitPlace returns the pool or filesystem in which a backend counts the size of its forks for a disk limit,
// or "" if its forks cannot share a limit.
func LimitPlace(b snapshot.Backend) string {
	if s, ok := b.(snapshot.Limiter); ok {
		return s.LimitPlace()
	}
	return ""
}

// chooseEach finds a backend for each tree of env:
//   - The tree of the workspace gets the first driver that supports it. If that supports only the workspace
//     alone, the tree becomes two.
//   - A tree mounted in the workspace gets the first driver that supports it.
//   - Other trees, to which commands rarely write, get the first backend that takes snapshots without fsync.
//
// A request for a backend applies to the tree of the workspace; with a frozen base also to the trees mounted
// in the workspace.
func (hf *Host) chooseEach(ctx context.Context, env *Environment, req Request) ([]Choice, error) {
	holder := env.treeOf(req.Workspace)
	var chosen []Choice
	for _, tree := range env.Trees {
		var found []Choice
		var err error
		switch {
		case tree == holder:
			found, err = hf.chooseForWorkspace(ctx, tree, req)
		case Within(tree, req.Workspace):
			found, err = hf.chooseWithin(ctx, tree, req)
		default:
			found, err = hf.chooseForRest(ctx, tree, req)
		}
		if tree != holder && errors.Is(err, errs.ErrNotFound) {
			continue // the tree has just vanished
		}
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, found...)
	}
	slices.SortStableFunc(chosen, func(a, b Choice) int {
		switch {
		case a.Tree < b.Tree:
			return -1
		case a.Tree > b.Tree:
			return 1
		}
		return 0
	})
	return chosen, nil
}

// chooseForWorkspace finds a backend for the tree that holds the workspace. It tries each driver on the whole
// tree, then on the workspace alone; in that case it returns two choices.
func (hf *Host) chooseForWorkspace(ctx context.Context, tree string, req Request) ([]Choice, error) {
	var why []error
	for _, d := range hf.drivers {
		if req.Backend != "" && req.Backend != d.Name || req.Backend == "" && !automatic(d, &req) {
			continue
		}
		b, err := hf.try(ctx, d, tree, req)
		if err == nil {
			return []Choice{choiceOf(tree, d, req, why, b)}, nil
		}
		why = append(why, err)
		if tree == req.Workspace {
			continue
		}
		if b, err = hf.try(ctx, d, req.Workspace, req); err == nil {
			why = why[:len(why)-1] // drop the error of the whole tree by the same driver
			rest, err := hf.chooseForRest(ctx, tree, req)
			if err != nil {
				return nil, err
			}
			return append(rest, choiceOf(req.Workspace, d, req, why, b)), nil
		}
		why[len(why)-1] = err // the hints of the workspace apply
	}
	return nil, hf.noChoice(tree, req, why)
}

// chooseWithin finds a backend for a tree mounted in the workspace. It tries the requested driver first, then
// the others, because the requested one may not support this filesystem.
func (hf *Host) chooseWithin(ctx context.Context, tree string, req Request) ([]Choice, error) {
	var why []error
	for _, asked := range []bool{true, false} {
		for _, d := range hf.drivers {
			if asked != (d.Name == req.Backend) || !asked && !automatic(d, &req) {
				continue
			}
			b, err := hf.try(ctx, d, tree, req)
			if err == nil {
				return []Choice{choiceOf(tree, d, req, why, b)}, nil
			}
			why = append(why, err)
		}
		req.Backend = ""
	}
	return nil, hf.noChoice(tree, req, why)
}

// chooseForRest finds a backend for a tree of a new sandbox outside the workspace. It prefers one that takes
// snapshots without fsync.
func (hf *Host) chooseForRest(ctx context.Context, tree string, req Request) ([]Choice, error) {
	req.Frozen = false // applies to the workspace only
	var why []error
	var second *Choice
	for _, d := range hf.drivers {
		if !automatic(d, &req) {
			continue
		}
		b, err := hf.try(ctx, d, tree, req)
		switch {
		case err != nil:
			why = append(why, err)
		case !b.Facts().Flushes:
			return []Choice{{Tree: tree, Driver: d.Name, Reason: "snapshots without fsync", Backend: b}}, nil
		case second == nil:
			c := choiceOf(tree, d, req, why, b)
			second = &c
		}
	}
	if second != nil {
		return []Choice{*second}, nil
	}
	return nil, hf.noChoice(tree, req, why)
}

// automatic reports whether snapfs may choose a backend driver for a request that does not name it. It
// chooses some drivers only for a disk limit.
func automatic(d snapshot.Driver, req *Request) bool {
	return d.Automatic && (!d.ForLimits || LimitsDisk(req.Policy.Limits))
}

// try opens driver d for a tree. It returns an error if d does not support the tree, or the
// request's limits or frozen base.
func (hf *Host) try(ctx context.Context, d snapshot.Driver, tree string, req Request) (snapshot.Backend, error) {
	if d.Filesystem != "" && req.Backend == "" && !LimitsDisk(req.Policy.Limits) { // else Open has more to say
		if on, err := mount.FilesystemOf(tree); err == nil && on.Type != d.Filesystem {
			return nil, fmt.Errorf("%s: %w", d.Name, &errs.Error{
				Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("the tree is on " + on.Type + ", not on " + d.Filesystem),
			})
		}
	}
	b, err := d.Open(ctx, snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: hf.cat.DataDir(d.Name), Server: hf.server})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	if req.Frozen && !b.Facts().Frozen {
		return nil, fmt.Errorf("%s: its base is live: %w", d.Name, errs.ErrNotSupported)
	}
	if b.Facts().Served && LimitsIO(req.Policy.Limits) {
		return nil, fmt.Errorf("%s: %w", d.Name, ErrServed())
	}
	if LimitsDisk(req.Policy.Limits) {
		if err := canLimit(ctx, b, DiskLimit(req.Policy.Limits)); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		at := LimitPlace(b)
		if req.limitAt != "" && (at == "" || req.limitAt != anyPlace && at != req.limitAt) {
			return nil, fmt.Errorf("%s: it cannot share a disk limit with the other trees: %w", d.Name, errs.ErrNotSupported)
		}
	}
	return b, nil
}

// choiceOf returns the [Choice] of the backend b, which driver d opened, for a tree of a new sandbox. The
// reason in it is the last of passed, the errors of the drivers tried before.
func choiceOf(tree string, d snapshot.Driver, req Request, passed []error, b snapshot.Backend) Choice {
	c := Choice{Tree: tree, Driver: d.Name, Reason: "the first choice", Backend: b}
	switch {
	case req.Backend != "":
		c.Reason = "asked for"
	case len(passed) > 0:
		last := passed[len(passed)-1]
		c.Reason, c.hints = "not "+last.Error(), errs.HintsOf(last)
	}
	return c
}

// noChoice returns the error for a tree of a new sandbox that no backend driver supports, with hints. why are
// the errors of the drivers.
func (hf *Host) noChoice(tree string, req Request, why []error) error {
	err := &errs.Error{Op: "choosing a backend", Path: tree, Kind: errs.ErrNotSupported, Err: errors.Join(why...)}
	switch {
	case len(why) == 0:
		err.Err = fmt.Errorf("no backend named %q; there are %s", req.Backend, strings.Join(hf.driverNames(), ", "))
	case LimitsDisk(req.Policy.Limits):
		for _, last := range slices.Backward(why) { // prefer the hints of the driver for limits
			if hints := errs.HintsOf(last); len(hints) > 0 {
				err.Hints = append(slices.Clone(hints), "snapfs doctor")
				break
			}
		}
	case req.Frozen:
		err.Hints = []string{"snapfs pool create", "snapfs pool import " + errs.Quoted(req.Workspace), "snapfs doctor"}
	case req.Backend != "" && len(why) > 0:
		err.Hints = append(slices.Clone(errs.HintsOf(why[len(why)-1])), "snapfs doctor")
	default:
		err.Hints = []string{"snapfs doctor"}
	}
	return err
}

// driverNames returns the names of all drivers of backends that this Host can open, for the hints of errors.
func (hf *Host) driverNames() (names []string) {
	for _, d := range hf.drivers {
		names = append(names, d.Name)
	}
	return names
}

// BackendOf opens the backend that holds a tree of a sandbox. Later calls return the same
// backend.
func (hf *Host) BackendOf(ctx context.Context, t catalog.Tree) (snapshot.Backend, error) {
	key := t.Driver + " " + t.Path
	hf.mu.Lock()
	defer hf.mu.Unlock()
	if b := hf.backends[key]; b != nil {
		return b, nil
	}
	for _, d := range hf.drivers {
		if d.Name == t.Driver {
			b, err := d.Open(ctx, snapshot.Place{Tree: snapshot.Tree{Path: t.Path}, Dir: hf.cat.DataDir(d.Name), Held: true, Server: hf.server})
			if err != nil {
				return nil, fmt.Errorf("opening %s: %w", d.Name, err)
			}
			hf.backends[key] = b
			return b, nil
		}
	}
	return nil, &errs.Error{
		Op: "opening", Component: t.Driver, Path: t.Path, Kind: errs.ErrNotSupported,
		Err: errors.New("this snapfs has no such backend"),
	}
}

// RecordPlace stores in the catalogue where a backend's data lies, if that is outside the state directory. So
// a garbage collection finds the data when no sandbox refers to it any more, and no sandbox sees it.
func (hf *Host) RecordPlace(c Choice) error {
	data := hf.DataPlace(c.Driver, c.Backend)
	if data == "" {
		return nil
	}
	return hf.cat.AddLocation(catalog.Location{Driver: c.Driver, Path: c.Tree}, data)
}

// DataPlace returns the directory in which the backend b of the named driver stores its data if that depends
// on the tree, for example one on the tree's filesystem. It returns "" if the data is in the state directory.
func (hf *Host) DataPlace(driver string, b snapshot.Backend) string {
	where := b.Facts().Hidden
	if where == filepath.Clean(hf.cat.DataDir(driver)) {
		return ""
	}
	return where
}

// Remember stores the backend that [Host.Choose] opened for a tree, so that BackendOf returns it instead of
// opening another.
func (hf *Host) Remember(c Choice) {
	hf.mu.Lock()
	hf.backends[c.Driver+" "+c.Tree] = c.Backend
	hf.mu.Unlock()
}
