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
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
)

// A SendRequest says what is to be sent.
type SendRequest struct {
	// Sandbox, and State: a named state of it, or "", which names its files as they are now.
	Sandbox, State string
	// Base is a named state that the other side has too, or "".
	Base string
	// Have is what the other side has, see [Engine.Have]: where Base is "", the newest of
	// its states is the base; and what it has of this one already is not sent again.
	Have []string
}

// Sent says what was sent.
type Sent struct {
	Sandbox string `json:"sandbox"`
	State   string `json:"state"`
	ID      string `json:"id"`
	Base    string `json:"base,omitempty"`
	// From is how much of the stream was with the other side, in bytes.
	From snapshot.Bytes `json:"from,omitempty"`
}

// Send writes the workspace of a sandbox, at a named state, as a stream: all of it,
// or what it is beyond a base. What else the sandbox has changed stays here: it is
// about this machine. The sandbox may be used meanwhile; when it is removed, the
// stream ends early, and no receiver takes it for a whole one.
//
// On a live base a named state is not what it was when a real file has been edited
// since, so that it is sent whole, unless it came from another machine itself.
// With no State it names one, which stays after an error too: that can be sent again by its name.
// Cost: in proportion to the workspace, or to what lies between base and state
// where the filesystem can tell. What is with the other side already is read and
// compared, and not sent.
// Errors: errs.ErrNotFound; ErrNotSupported (a live base); ErrInterrupted; those of w and, with
// no State, of [Engine.Snapshot].
func (tr *Client) Send(ctx context.Context, w io.Writer, req SendRequest) (Sent, error) {
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

// send writes the stream, or only its rest if the other side has the beginning.
func (s *sending) send(ctx context.Context, w io.Writer) (Sent, error) {
	l := stream.Header{
		Sandbox: s.rec.Name, State: s.state.Name, ID: s.state.Identity(), Taken: s.state.Taken, Workspace: s.rec.Workspace,
		Driver: s.tree.Driver, Form: snapshot.FormCommands,
	}
	sent := Sent{Sandbox: s.rec.Name, State: s.state.Name, ID: l.ID}
	if s.base != nil {
		l.Base, sent.Base = s.base.Identity(), s.base.Name
	}
	if s.begun.Bytes > 0 {
		err := s.rest(ctx, w, l)
		if !errors.Is(err, stream.ErrOtherPrefix) {
			sent.From = snapshot.Bytes(s.begun.Bytes)
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

// hasState: a sandbox has this state, before anything is named.
func (tr *Client) hasState(name, state string) error {
	rec, err := tr.cat.Get(name)
	if err == nil {
		_, err = sandbox.IdsAt(rec, state)
	}
	return err
}

// A sending is a state about to be sent.
type sending struct {
	e     *Client
	rec   *catalog.Record
	state catalog.NamedSnapshot
	base  *catalog.NamedSnapshot
	// tree holds the workspace; b has the state of it as id.
	tree catalog.Tree
	b    snapshot.Backend
	id   snapshot.ID
	// baseID is the base's, or "".
	baseID snapshot.ID
	// begun is what the other side has of it.
	begun stream.Partial
}

func (tr *Client) sending(ctx context.Context, rec *catalog.Record, req SendRequest) (*sending, error) {
	s := &sending{e: tr, rec: rec}
	i := workIn(rec)
	s.tree = rec.Trees[i]
	var err error
	if _, err = sandbox.IdsAt(rec, req.State); err != nil {
		return nil, err
	}
	s.state, _ = rec.Snapshot(req.State)
	s.id = s.state.IDs[i]
	switch {
	case req.Base != "":
		if _, err := sandbox.IdsAt(rec, req.Base); err != nil {
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
		s.goOn(req.Have)
	}
	if s.base != nil {
		s.baseID = s.base.IDs[i]
	}
	s.b, err = tr.engine.Host.BackendOf(ctx, s.tree)
	return s, err
}

// workIn is the index of the tree that the workspace is in.
func workIn(rec *catalog.Record) int {
	path := hostfs.Holder(rec)
	return max(0, slices.IndexFunc(rec.Trees, func(t catalog.Tree) bool { return t.Path == path }))
}

// keepsStill: the other side's state is what this one has.
func (s *sending) keepsStill(m catalog.NamedSnapshot) bool { return s.tree.Frozen || m.Sent != "" }

// common is the newest state that the other side has and this one can build on.
func (s *sending) common(have []string) *catalog.NamedSnapshot {
	for _, m := range slices.Backward(s.rec.Snapshots) {
		if m.Name != s.state.Name && slices.Contains(have, m.Identity()) && s.keepsStill(m) {
			return &m
		}
	}
	return nil
}

// stream writes the content: by the backend, where it can send just that.
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

// difference writes what the state is beyond its base.
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

// open opens the workspace as the state has it.
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

// whole writes all of the workspace: what makes it of nothing.
func (s *sending) whole(ctx context.Context, w io.Writer) error {
	base, err := sandbox.IdsAt(s.rec, "")
	if err != nil {
		return err
	}
	// Where the state shows less than it has, who looks for what was touched says so.
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
		return &errs.Error{Op: "sending", Path: nothing, Kind: errs.KindOf(err), Err: err}
	}
	empty, err := os.Open(nothing)
	if err != nil {
		return &errs.Error{Op: "sending", Path: nothing, Kind: errs.KindOf(err), Err: err}
	}
	defer empty.Close()
	opt := diff.Options{OverlayViews: true, Skip: s.e.engine.Host.Skip(s.b, s.rec.Workspace), Taken: time.Unix(0, 0)}
	changes, err := diff.Trees(ctx, empty, dir, opt)
	if err != nil {
		return err
	}
	return stream.Encode(ctx, w, empty, dir, changes, false)
}

// OpenState opens the workspace of a sandbox at a named state.
func (tr *Client) OpenState(ctx context.Context, name, state string) (*os.File, error) {
	rec, err := tr.cat.Get(name)
	if err != nil {
		return nil, err
	}
	s, err := tr.sending(ctx, rec, SendRequest{State: state})
	if err != nil {
		return nil, err
	}
	dir, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return os.Open(vfs.FDPath(dir) + "/.") // it was opened to pass through alone
}
