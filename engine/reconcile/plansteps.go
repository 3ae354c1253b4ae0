package reconcile

import (
	"context"
	"fmt"
	"io/fs"
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
	var h hasher
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

// stateOf returns the State of a file in a plan, with the digest of its content; nil for a nil node.
func stateOf(ctx context.Context, h *hasher, l *baseline.RootedReader, path string, n *diff.Node) (*State, error) {
	if n == nil {
		return nil, nil
	}
	s := &State{
		Type: typeName(n.Mode), Mode: modeString(n.Mode), UID: n.UID, GID: n.GID,
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
	if err = h.digest(ctx, fd, s); err != nil && ctx.Err() != nil {
		err = &errs.Error{Op: "planning", Path: path, Kind: errs.ErrInterrupted, Err: err}
	}
	return s, err
}

// typeName returns the word for a file's type in State.Type, such as "directory".
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

// modeString returns permissions with the set-id and sticky bits as four octal digits.
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
