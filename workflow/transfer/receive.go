package transfer

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/sendstream"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
)

// A ReceiveRequest says what to make of a stream that another machine sent: which sandbox, or which named
// snapshot.
type ReceiveRequest struct {
	// Request describes the sandbox that a full stream creates. Without a Name or a
	// Workspace it has the sender's. Its policy is always the receiver's, except that the limits of a budget are not
	// higher than the sender's.
	hostfs.Request
	// State is the name for the received snapshot; "" means the sender's name.
	State string
}

// Received says which sandbox and named snapshot snapfs made of a stream that another machine sent.
type Received struct {
	Sandbox string `json:"sandbox"`
	State   string `json:"state"`
	ID      string `json:"id"`
	// New is set if Receive made a new sandbox.
	New bool `json:"new"`
}

// Receive reads a stream and makes a named snapshot of it. A whole stream becomes a new
// sandbox on this machine's workspace, with the sent content. A stream with a base becomes
// another named snapshot of the sandbox that has the base; the sandbox's files do not change
// until it is rolled back to that snapshot. What the sender used of the sandbox's budget counts here as well; a sandbox
// with a budget becomes no sandbox without one.
//
// The stream is not trusted: no snapshot exists before the whole stream has arrived with the
// right checksum, and Receive writes only in a fork that no process uses. Atomic: after an
// error or a crash there is no such sandbox or snapshot. The received part of a broken stream
// stays in the state directory, if there is space, until a resumed transfer completes it
// ([Client.Offers] names it), [Client.Forget] removes it, or a week has passed.
//
// Errors: errs.ErrCorrupt (truncated, damaged, or not a stream), ErrExists (the name or the snapshot), ErrNotFound (the
// base or the workspace), ErrInvalid (a budget, and a network whose requests nobody counts), ErrInterrupted, and those
// of [engine.Engine.New].
func (tr *Client) Receive(ctx context.Context, r io.Reader, req ReceiveRequest) (Received, error) {
	in, l, err := stream.Open(r)
	if err != nil {
		return Received{}, err
	}
	if l.Form != snapshot.FormCommands {
		return Received{}, receiveError(l, errs.ErrNotSupported, "it is in the form "+string(l.Form)+", which this program does not read")
	}
	if req.State == "" {
		req.State = l.State
	}
	x := &receiving{e: tr, in: in, label: l, state: req.State}
	k, err := x.openPartial(in)
	if err != nil {
		return Received{}, err
	}
	var got Received
	if l.Base == "" {
		got, err = x.asNew(ctx, req.Request)
	} else {
		got, err = x.onBase(ctx, req.Name)
	}
	return got, k.end(err)
}

func receiveError(l stream.Header, kind error, why string, hints ...string) error {
	return &errs.Error{Op: "receiving", Path: l.Sandbox + "@" + l.State, Kind: kind, Err: errors.New(why), Hints: hints}
}

// A receiving is the state of receiving one stream, in which a sandbox comes from another machine, with the
// stream's header.
type receiving struct {
	e     *Client
	in    io.Reader
	label stream.Header
	state string
}

func (x *receiving) asNew(ctx context.Context, req hostfs.Request) (Received, error) {
	if req.Name == "" {
		req.Name = x.label.Sandbox
	}
	if req.Workspace == "" {
		req.Workspace = x.label.Workspace
		if err := x.e.engine.Host.CheckWorkspace(req.Workspace); err != nil {
			return Received{}, errors.Join(err, nameWorkspace("snapfs receive -C DIRECTORY"))
		}
	}
	req.Fill = x.fill
	rec, err := x.e.engine.New(ctx, req)
	if err != nil {
		return Received{}, err
	}
	return Received{Sandbox: rec.Name, State: x.state, ID: x.label.ID, New: true}, nil
}

// nameWorkspace returns the error for a received stream whose sandbox has a workspace that does not exist on
// this machine. Its hint is command, which names a directory of this machine.
func nameWorkspace(command string) error {
	return &errs.Error{Op: "receiving", Kind: errs.ErrNotFound, Err: errors.New("name a directory of this machine"), Hints: []string{command}}
}

// fill replaces the workspace in the forks of a new sandbox by the content of the stream, and seals all trees
// as the first named snapshot.
func (x *receiving) fill(ctx context.Context, rec *catalog.Record) error {
	t := rec.Trees[workIn(rec)]
	places, err := x.write(ctx, rec, t, nil)
	if err != nil {
		return err
	}
	ids := sandbox.NewSnapshotIDs(rec)
	for i, t := range rec.Trees {
		if err := x.seal(ctx, t, ids[i]); err != nil {
			return err
		}
	}
	rec.Snapshots, rec.At = []catalog.NamedSnapshot{{Name: x.state, Taken: time.Now(), IDs: ids, Sent: x.label.ID, MountPoints: places}}, x.state
	if x.label.Budget == nil {
		return nil
	}
	return x.e.engine.Egress.ReceiveBudget(rec, x.label.Budget)
}

func (x *receiving) seal(ctx context.Context, t catalog.Tree, id snapshot.ID) error {
	if err := fault.Point(ctx, "seal what was received"); err != nil {
		return receiveError(x.label, errs.KindOf(err), err.Error())
	}
	b, err := x.e.engine.Host.BackendOf(ctx, t)
	if err == nil {
		_, err = b.Seal(ctx, t.Fork, id, snapshot.Idle)
	}
	return err
}

// write applies the received stream to the workspace in the fork of the tree t. If base is nil, the stream
// has the whole workspace, and write empties it first. It returns the [catalog.NamedSnapshot.MountPoints] of
// the result.
func (x *receiving) write(ctx context.Context, rec *catalog.Record, t catalog.Tree, base *catalog.NamedSnapshot) ([]string, error) {
	fork, err := x.e.engine.Reconcile.OpenFork(ctx, t, rec.Workspace)
	if err != nil {
		return nil, err
	}
	defer fork.Close()
	places, err := x.e.engine.Host.MountStubs(rec, fork.Dir)
	if err != nil {
		return nil, err
	}
	if base == nil {
		if err := hostfs.ClearOut(fork.Dir, places); err != nil {
			return nil, receiveError(x.label, errs.KindOfFile(err), err.Error())
		}
	}
	left := 0
	var unknown []string
	how := sendstream.Options{OnBase: base != nil, Stays: func(path string) { unknown = append(unknown, path) }, LeftOut: func(path, attr string) {
		if left++; left == 1 {
			x.e.notice("left out, as only root can set it: " + pathlist.Printable(attr) + " of " + pathlist.Printable(path))
		}
	}}
	for _, p := range places {
		how.Places = append(how.Places, p.Path)
	}
	how.Unknown = how.Places
	if base != nil {
		how.Unknown = base.MountPoints
	}
	if err := sendstream.Apply(ctx, fork.Dir, x.in, how); err != nil {
		return nil, err
	}
	if left > 1 {
		x.e.notice("left out as well: " + strconv.Itoa(left-1) + " more such attributes")
	}
	made, err := hostfs.RestoreStubs(ctx, fork.Dir, places)
	if err != nil {
		return nil, err
	}
	unknown = append(unknown, made...)
	slices.Sort(unknown)
	return unknown, fork.Sync(ctx)
}

// onBase adds the received snapshot to a sandbox that has the snapshot on which the stream builds: the
// sandbox called name, or any if name is "".
func (x *receiving) onBase(ctx context.Context, name string) (Received, error) {
	name, err := x.find(name)
	if err != nil {
		return Received{}, err
	}
	h, err := x.e.engine.Supervise.Hold(ctx, name, "receiving")
	if err != nil {
		return Received{}, err
	}
	defer h.Release()
	base, err := x.fits(h.Record)
	if err != nil {
		return Received{}, err
	}
	i := workIn(h.Record)
	t := h.Trees[i]
	id := h.NewSnapshot()
	t.Fork = h.NewFork()
	m := catalog.NamedSnapshot{
		Name: x.state, Parent: base.Name, Taken: time.Now(), IDs: slices.Clone(base.IDs), Base: base.Base, Sent: x.label.ID,
	}
	m.IDs[i] = id
	err = x.e.engine.Sandboxes.Changing(ctx, h, func() error {
		trees, forks := []catalog.Tree{t}, []snapshot.ForkID{t.Fork}
		if err := x.e.engine.Sandboxes.ForkAll(ctx, h.Record, trees, base.IDs[i:i+1], forks); err != nil {
			return err
		}
		if m.MountPoints, err = x.write(ctx, h.Record, t, &base); err != nil {
			return err
		}
		if err := x.seal(ctx, t, id); err != nil {
			return err
		}
		if err := x.e.engine.Egress.AddSentUse(h.Record, x.label.Budget); err != nil {
			return err
		}
		h.Snapshots = append(h.Snapshots, m)
		if err := h.Save(); err != nil {
			return err
		}
		return x.e.engine.Sandboxes.RemoveForks(ctx, trees, forks)
	})
	if err != nil {
		return Received{}, err
	}
	h.Release()
	return Received{Sandbox: name, State: x.state, ID: x.label.ID}, x.e.engine.Sandboxes.SweepLater(ctx)
}

// find returns the name of a sandbox that has the snapshot on which the received stream builds: the one
// called name, else one with the sender's name, else any.
func (x *receiving) find(name string) (string, error) {
	records, failures := x.e.cat.List()
	var found []string
	for _, r := range records {
		if slices.ContainsFunc(r.Snapshots, x.isBase) && (name == "" || r.Name == name) {
			found = append(found, r.Name)
		}
	}
	switch {
	case slices.Contains(found, x.label.Sandbox):
		return x.label.Sandbox, nil
	case len(found) > 0:
		return found[0], nil
	}
	return "", errors.Join(append(failures, receiveError(x.label, errs.ErrNotFound, "no sandbox here has the state that it builds on",
		"snapfs send "+x.label.Sandbox+"@"+x.label.State+"   # there, without --base"))...)
}

func (x *receiving) isBase(m catalog.NamedSnapshot) bool { return m.Identity() == x.label.Base }

// fits returns the named snapshot of rec on which the received stream builds. It returns an error if there is
// none, or if the sandbox already has the snapshot that is received.
func (x *receiving) fits(rec *catalog.Record) (catalog.NamedSnapshot, error) {
	if err := catalog.CheckName(x.state); err != nil {
		return catalog.NamedSnapshot{}, err
	}
	for _, m := range rec.Snapshots {
		if m.Identity() == x.label.ID {
			return m, receiveError(x.label, errs.ErrExists, rec.Name+" has it already, as "+m.Name, "snapfs rollback "+rec.Name+" "+m.Name)
		}
	}
	if _, taken := rec.Snapshot(x.state); taken {
		return catalog.NamedSnapshot{}, receiveError(x.label, errs.ErrExists, rec.Name+" has another state of this name", "snapfs receive "+rec.Name+"@NAME")
	}
	i := slices.IndexFunc(rec.Snapshots, x.isBase)
	if i < 0 { // it went since
		return catalog.NamedSnapshot{}, receiveError(x.label, errs.ErrNotFound, rec.Name+" has not the state that it builds on")
	}
	return rec.Snapshots[i], nil
}
