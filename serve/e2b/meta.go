package e2b

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// metaFile is the file in a sandbox's directory in the catalogue that this server writes for each sandbox
// that it makes. Without it, no route acts on the sandbox.
const metaFile = "e2b.json"

// A meta holds the data about a sandbox that E2B has and snapfs has not, such as its template and access
// token. It is stored in metaFile.
type meta struct {
	Template string            `json:"template"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Envs     map[string]string `json:"envs,omitempty"`
	// AutoPause pauses the sandbox at its time-out, where it would be removed. AutoResume resumes it when a request for
	// its agent comes.
	AutoPause  bool `json:"auto_pause,omitempty"`
	AutoResume bool `json:"auto_resume,omitempty"`
	// Timeout is the last time-out that a client set.
	Timeout time.Duration `json:"timeout_ns"`
	Started time.Time     `json:"started"`
	// Internet is what the client asked for, or nil.
	Internet *bool          `json:"internet,omitempty"`
	Network  *networkConfig `json:"network,omitempty"`
	// Token is what a client of the agent shows, and Traffic what one of a port shows, "" for none.
	Token   string `json:"token"`
	Traffic string `json:"traffic,omitempty"`
	// Snapshot is set for a sandbox that stores a snapshot: it is a template and runs nothing. Of is the sandbox that it
	// was taken of.
	Snapshot bool   `json:"snapshot,omitempty"`
	Of       string `json:"of,omitempty"`
}

func newToken() string { return rand.Text() }

// save writes the data that only E2B has about the sandbox called id to the file metaFile in the catalogue,
// durably.
func (m *meta) save(e *engine.Engine, id string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return e.Catalog().WriteFile(id, metaFile, append(data, '\n'))
}

// readMeta reads the data that only E2B has about the sandbox called id from the file metaFile in the
// catalogue. Errors: ErrNotFound for a sandbox that this server did not make.
func readMeta(e *engine.Engine, id string) (meta, error) {
	var m meta
	data, err := os.ReadFile(filepath.Join(e.Catalog().Path(id), metaFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, notFound(id)
	case err != nil:
		return m, errs.With("opening", id, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, &errs.Error{Op: "opening", Subject: id, Kind: errs.ErrCorrupt, Err: err}
	}
	return m, nil
}

// notFound returns the error for the unknown sandbox id. Its text has the words "was not found", for which
// clients look.
func notFound(id string) error {
	return errs.New("opening", id, errs.ErrNotFound, "the sandbox was not found")
}

// An opened is a sandbox that this server made, together with the engine that was opened for the present
// request.
type opened struct {
	e *engine.Engine
	*catalog.Record
	meta meta
}

// enter opens the engine and the sandbox or snapshot called id, if this server made it. Errors: ErrNotFound.
func (s *Server) enter(ctx context.Context, id string) (*opened, error) {
	if catalog.CheckName(id) != nil {
		return nil, notFound(id)
	}
	e, err := s.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	rec, err := e.Catalog().Get(id)
	if errors.Is(err, errs.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	m, err := readMeta(e, id)
	if err != nil {
		return nil, err
	}
	b := &opened{e, rec, m}
	if !b.exists() {
		return nil, notFound(id)
	}
	return b, s.covers(rec)
}

// exists reports whether the sandbox is complete and its time-out has not passed. A sandbox whose time-out
// has passed may not be removed yet.
func (b *opened) exists() bool {
	end := b.Policy.Limits.RemovalAge()
	return b.State == catalog.Ready && b.Ended == nil && (end == 0 || b.AgeAt(catalog.Now()) < end)
}

// covers returns an error if the sandbox of rec may do more than the rules that the operator of this server
// set, because an earlier server with wider rules made it. The time limits do not count, because a client
// sets them, nor the profiles of templates, which the operator has named.
func (s *Server) covers(rec *catalog.Record) error {
	if p := rec.Policy.Profile; p != nil && !p.Found {
		for _, path := range s.o.Templates {
			if path == p.Path {
				return nil
			}
		}
	}
	limited := *rec
	own, l := s.o.Rules.Policy.Limits, &limited.Policy.Limits
	l.TTL, l.RemoveAfter, l.KeepEnd = own.TTL, own.RemoveAfter, own.KeepEnd
	if narrower(rec.Policy.Network, s.o.Rules.Policy.Network) {
		limited.Policy.Network = "none"
	}
	return s.o.Rules.Covers(&limited)
}

// sandbox opens the engine and the sandbox called id as [Server.enter] does. For a snapshot it returns
// ErrNotFound.
func (s *Server) sandbox(ctx context.Context, id string) (*opened, error) {
	b, err := s.enter(ctx, id)
	if err == nil && b.meta.Snapshot {
		return nil, notFound(id)
	}
	return b, err
}

// paused reports whether the sandbox's processes are paused, by a client's request or at the sandbox's
// time-out.
func (b *opened) paused() bool {
	l := b.Policy.Limits
	return l.TTL > 0 && b.AgeAt(catalog.Now()) >= l.TTL
}

// endAt returns when the time-out of the sandbox passes. If a person has removed the time-out, it returns a
// time far away, because E2B's clients expect one.
func (b *opened) endAt() time.Time {
	l, now := b.Policy.Limits, catalog.Now()
	end := l.TTL
	if end == 0 {
		end = l.RemoveAfter
	}
	if end == 0 {
		end = b.AgeAt(now) + 100*365*24*time.Hour
	}
	return now.Wall.Add(end - b.AgeAt(now))
}
