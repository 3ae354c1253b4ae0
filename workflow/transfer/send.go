package transfer

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
)

// A SendRequest says which snapshot of which sandbox to send, and on which base the receiver can build.
type SendRequest struct {
	// Sandbox is the name of the sandbox, and State one of its named snapshots; "" first takes
	// a snapshot of the present files.
	Sandbox, State string
	// Base is a named snapshot that the other side has too, or "".
	Base string
	// Have is the list of the other side's [Client.Offers]. If Base is "", the newest snapshot
	// in it becomes the base; a received part of this snapshot in it is not sent again.
	Have []string
}

// Sent says which snapshot was sent to another machine, and how much of it that machine already had.
type Sent struct {
	Sandbox string `json:"sandbox"`
	State   string `json:"state"`
	ID      string `json:"id"`
	Base    string `json:"base,omitempty"`
	// From is the number of bytes of the stream that the other side already had.
	From snapshot.Bytes `json:"from,omitempty"`
}

// Send writes the workspace of a sandbox, at a named snapshot, to w as a stream: whole, or as the difference
// to a base. Changes outside the workspace are not sent, because they concern this machine. The sandbox may
// be used meanwhile; if it is removed, the stream breaks off and no receiver accepts it as whole.
//
// On a live base a named snapshot may change when a real file is edited, so it is sent whole, unless it was
// itself received. With an empty State, Send takes a snapshot, which stays after an error so that it can be
// sent again by name.
//
// The stream has the limits of the sandbox's budget, and the use of them, here and on other machines. The other side
// learns of later use here with the next stream.
//
// Cost: proportional to the workspace, or to the difference where the filesystem can list it. A part that the
// receiver has is read and compared, and not sent. Errors: errs.ErrNotFound, ErrNotSupported (a live base),
// ErrInterrupted, those of w, and with an empty State those of [engine.Engine.Snapshot]; ErrDenied for a sandbox with
// labelled files.
func (tr *Client) Send(ctx context.Context, w io.Writer, req SendRequest) (Sent, error) {
	if rec, err := tr.cat.Get(req.Sandbox); err == nil && rec.Policy.Data.Labelled() {
		return Sent{}, &errs.Error{
			Op: "sending", Subject: req.Sandbox, Kind: errs.ErrDenied,
			Err:   errors.New("its profile labels files (secret or private in [data]), whose content may not leave this machine, and a snapshot has them"),
			Hints: []string{"snapfs promote " + req.Sandbox + "   # and send a sandbox without labels, in which these files are hidden"},
		}
	}
	if req.State == "" {
		if err := tr.hasState(req.Sandbox, req.Base); err != nil {
			return Sent{}, err
		}
		m, err := tr.engine.Snapshot(ctx, req.Sandbox, "")
		if err != nil {
			return Sent{}, err
		}
		req.State = m.Name
	}
	rec, err := tr.cat.Get(req.Sandbox)
	if err != nil {
		return Sent{}, err
	}
	s, err := tr.sending(ctx, rec, req)
	if err != nil {
		return Sent{}, err
	}
	sent, err := s.send(ctx, w)
	if err != nil {
		return Sent{}, s.failed(err)
	}
	return sent, nil
}

// send writes the stream with the snapshot to w, or only the part of it that the receiver lacks.
func (s *sending) send(ctx context.Context, w io.Writer) (Sent, error) {
	l := stream.Header{
		Sandbox: s.rec.Name, State: s.state.Name, ID: s.state.Identity(), Taken: s.state.Taken, Workspace: s.rec.Workspace,
		Driver: s.tree.Driver, Form: snapshot.FormCommands,
	}
	sent := Sent{Sandbox: s.rec.Name, State: s.state.Name, ID: l.ID}
	var err error
	if l.Budget, err = s.e.engine.Egress.SendBudget(s.rec); err != nil {
		return sent, err
	}
	if s.base != nil {
		l.Base, sent.Base = s.base.Identity(), s.base.Name
	}
	if s.received.Bytes > 0 {
		err := s.rest(ctx, w, l)
		if !errors.Is(err, stream.ErrOtherPrefix) {
			sent.From = snapshot.Bytes(s.received.Bytes)
			return sent, err
		}
	}
	p, err := stream.NewWriter(w, l)
	if err != nil {
		return sent, err
	}
	if err := s.stream(ctx, p); err != nil {
		return sent, err
	}
	return sent, p.Close()
}

// hasState returns an error unless the sandbox called name has the named snapshot state.
func (tr *Client) hasState(name, state string) error {
	rec, err := tr.cat.Get(name)
	if err == nil {
		_, err = sandbox.SnapshotIDs(rec, state)
	}
	return err
}

// A sending is the state of sending one named snapshot to another machine as a stream, with the base from
// which the stream gives differences.
type sending struct {
	e     *Client
	rec   *catalog.Record
	state catalog.NamedSnapshot
	base  *catalog.NamedSnapshot
	// tree is the tree with the workspace; b is its backend, in which the snapshot has the id
	// id.
	tree catalog.Tree
	b    snapshot.Backend
	id   snapshot.ID
	// baseID is the snapshot of the base, or "".
	baseID snapshot.ID
	// received identifies the prefix of this stream that the other side has.
	received stream.Partial
}

func (tr *Client) sending(ctx context.Context, rec *catalog.Record, req SendRequest) (*sending, error) {
	s := &sending{e: tr, rec: rec}
	i := workIn(rec)
	s.tree = rec.Trees[i]
	var err error
	if _, err = sandbox.SnapshotIDs(rec, req.State); err != nil {
		return nil, err
	}
	s.state, _ = rec.Snapshot(req.State)
	s.id = s.state.IDs[i]
	switch {
	case req.Base != "":
		if _, err := sandbox.SnapshotIDs(rec, req.Base); err != nil {
			return nil, err
		}
		m, _ := rec.Snapshot(req.Base)
		if !s.keepsStill(m) {
			return nil, &errs.Error{
				Op: "sending " + rec.Name, Path: req.Base, Kind: errs.ErrNotSupported,
				Err:   errors.New("its base is live: real files that were edited since show in this state, and the other side has it without"),
				Hints: []string{"snapfs send " + rec.Name + "@" + req.State, "snapfs new --frozen"},
			}
		}
		s.base = &m
	default:
		s.base = s.common(req.Have)
		s.findReceived(req.Have)
	}
	if s.base != nil {
		s.baseID = s.base.IDs[i]
	}
	s.b, err = tr.engine.Host.BackendOf(ctx, s.tree)
	return s, err
}

// workIn returns the index, in rec.Trees, of the tree that contains the sandbox's workspace, which is the
// part that is sent; 0 if none does.
func workIn(rec *catalog.Record) int {
	path := hostfs.Holder(rec)
	return max(0, slices.IndexFunc(rec.Trees, func(t catalog.Tree) bool { return t.Path == path }))
}

// keepsStill reports whether the snapshot m cannot change any more, so that the receiver's copy of it equals
// this one. It can change if it contains the real tree itself (a live base) and no copy.
func (s *sending) keepsStill(m catalog.NamedSnapshot) bool { return s.tree.Frozen || m.Sent != "" }

// common returns the newest named snapshot of the sandbox that the receiver has too, by have, the list of its
// data, and on which the stream can build; nil if there is none.
func (s *sending) common(have []string) *catalog.NamedSnapshot {
	for _, m := range slices.Backward(s.rec.Snapshots) {
		if m.Name != s.state.Name && slices.Contains(have, m.Identity()) && s.keepsStill(m) {
			return &m
		}
	}
	return nil
}

// stream writes the payload of the stream, the content of the snapshot, to w. It uses the backend's own Send
// if that sends exactly the workspace.
func (s *sending) stream(ctx context.Context, w io.Writer) error {
	if b, ok := s.b.(snapshot.Sender); ok && s.tree.Path == s.rec.Workspace && b.SendForm() == snapshot.FormCommands {
		err := b.Send(ctx, w, snapshot.Sending{ID: s.id, Base: s.baseID})
		if !errors.Is(err, errs.ErrNotSupported) {
			return err
		}
	}
	if s.base != nil {
		return s.difference(ctx, w)
	}
	return s.whole(ctx, w)
}

// difference writes the difference between the workspace in the snapshot that is sent and in its base, a
// snapshot that the receiver has, to w.
func (s *sending) difference(ctx context.Context, w io.Writer) error {
	changes, err := s.e.engine.Compare.Compare(ctx, compare.Ref{Sandbox: s.rec.Name, State: s.base.Name}, compare.Ref{Sandbox: s.rec.Name, State: s.state.Name})
	if err != nil {
		return err
	}
	defer changes.Close()
	for _, p := range changes.Parts {
		if p.Workspace {
			return stream.Encode(ctx, w, p.Old, p.New, p.Changes, true)
		}
	}
	return stream.Encode(ctx, w, nil, nil, nil, true)
}

// open opens the workspace, as it is in the snapshot that is sent to another machine, for reading; the caller
// closes it.
func (s *sending) open(ctx context.Context) (*os.File, error) {
	view, err := compare.ViewOf(ctx, s.b, s.tree, s.id)
	if err != nil {
		return nil, err
	}
	dirs, err := hostfs.OpenDir(ctx, isolate.OpenViews, s.b, s.tree.Path, s.rec.Workspace, false, view)
	if err != nil {
		return nil, err
	}
	return dirs[0], nil
}

// whole writes the entire workspace of the snapshot that is sent to w, as a difference to an empty one.
func (s *sending) whole(ctx context.Context, w io.Writer) error {
	base, err := sandbox.SnapshotIDs(s.rec, "")
	if err != nil {
		return err
	}
	// The backend returns an error if the state shows less than it has.
	if _, _, err := compare.ListChanges(ctx, s.b, compare.Pair{Tree: s.tree, Left: base[workIn(s.rec)], Right: s.id}); err != nil {
		return err
	}
	dir, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer dir.Close()
	nothing := filepath.Join(s.e.cat.Dir(), "empty")
	if err := os.Mkdir(nothing, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return errs.With("sending", nothing, err)
	}
	empty, err := os.Open(nothing)
	if err != nil {
		return errs.With("sending", nothing, err)
	}
	defer empty.Close()
	opt := diff.Options{OverlayViews: true, Skip: s.e.engine.Host.Skip(s.b, s.rec.Workspace), Taken: time.Unix(0, 0)}
	changes, err := diff.Trees(ctx, empty, dir, opt)
	if err != nil {
		return err
	}
	return stream.Encode(ctx, w, empty, dir, changes, false)
}
