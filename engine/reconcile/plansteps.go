package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// AddSteps fills in the plan's steps and fingerprint. Cost: reading the old and the new content of each step.
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

// steps returns the plan's steps for the changes in one directory, made by two threads: opening files is slow.
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
	for i := range steps {
		if p.gitFiles[p.Changes[i].Path] {
			steps[i].Git, steps[i].Merged = true, false
		}
	}
	if failures[0] == nil {
		failures[0] = failures[1]
	}
	return steps, failures[0]
}

// someSteps fills in steps[from:to] of a plan. both has the paths that the real tree has changed, too.
func (p *promotionPart) someSteps(ctx context.Context, steps []Step, from, to int, both map[string]bool) error {
	var h diff.Hasher
	real, mine, built := baseline.RootedReader{Root: p.real}, baseline.RootedReader{Root: p.Part.New}, baseline.RootedReader{Root: p.built}
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
		if s.Expect, err = stateOf(ctx, &h, &real, c.Path, c.Old); err == nil {
			s.Result, err = stateOf(ctx, &h, source, path, c.New)
		}
		if err != nil {
			return errs.Wrap("reading", s.Path, err)
		}
	}
	return nil
}

// verb returns the word for a change in Step.Do: "add", "change" or "delete".
func verb(c diff.Change) string {
	switch c.Kind {
	case diff.Added:
		return "add"
	case diff.Deleted:
		return "delete"
	}
	return "change"
}

// wholeDigest is the file size, 1 GiB, from which a plan hashes only the data between holes: a sparse file of
// terabytes then takes milliseconds, not hours. Holes do not matter: a copy may have others.
const wholeDigest = 1 << 30

// stateOf returns the State of a file in a plan, with the digest of its content; nil for a nil node.
func stateOf(ctx context.Context, h *diff.Hasher, l *baseline.RootedReader, path string, n *diff.Node) (*State, error) {
	if n == nil {
		return nil, nil
	}
	s := &State{
		Type: diff.TypeName(n.Mode), Mode: diff.Octal(n.Mode), UID: n.UID, GID: n.GID,
		Target: exactjson.Escape(n.Target), Device: n.Rdev,
	}
	for name, value := range n.Xattrs {
		if s.Xattrs == nil {
			s.Xattrs = map[string]string{}
		}
		s.Xattrs[exactjson.Escape(name)] = exactjson.Escape(value)
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
	if s.Size < wholeDigest {
		s.SHA256, err = h.Sum(ctx, fd)
	} else {
		var sum [sha256.Size]byte
		sum, err = diff.Digest(ctx, fd, s.Size)
		s.DataSHA256 = hex.EncodeToString(sum[:])
	}
	if err != nil && ctx.Err() != nil {
		err = &errs.Error{Op: "planning", Path: path, Kind: errs.ErrInterrupted, Err: err}
	}
	return s, err
}
