package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// ApplyOptions say what may be carried back.
type ApplyOptions struct {
	// Paths limits it to these paths of the real machine, and what lies
	// beneath them; empty means all.
	Paths []string
}

func (e *Engine) recoverPromotions(context.Context) error { return nil }

// Apply brings a session's changes to the real tree.
func (s *Session) Apply(context.Context, ApplyOptions) error {
	return &snapshot.Error{Op: "applying", Path: s.Record.Name, Kind: snapshot.ErrNotSupported, Err: errors.New("not in this build")}
}
