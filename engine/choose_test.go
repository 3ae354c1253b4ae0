package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// TestWhatKeepsABackendFromATreeIsToldWithWhatMendsIt: of the one passed over last, and of the
// only one that was asked for.
func TestWhatKeepsABackendFromATreeIsToldWithWhatMendsIt(t *testing.T) {
	b := newBench(t)
	refuser := snapshot.Driver{Name: "refuser", Automatic: true, Open: func(context.Context, snapshot.Place) (snapshot.Backend, error) {
		return nil, &snapshot.Error{Op: "opening", Backend: "refuser", Kind: snapshot.ErrNotSupported, Err: errors.New("it will not"), Hints: []string{"ask it"}}
	}}
	last := plain.Driver()
	last.Automatic = true
	e, err := engine.Open(t.Context(), engine.Config{State: b.state, Drivers: []snapshot.Driver{refuser, last}})
	if err != nil {
		t.Fatal(err)
	}
	req := b.request()
	trees, err := e.Backends(t.Context(), req)
	if err != nil || len(trees) == 0 {
		t.Fatal(trees, err)
	}
	for _, tree := range trees {
		if strings.Contains(tree.Reason, "refuser") != (len(tree.Hints) > 0) {
			t.Errorf("%s has the reason %q, and the hints %q", tree.Path, tree.Reason, tree.Hints)
		}
	}
	if !slices.ContainsFunc(trees, func(c engine.Candidate) bool { return slices.Equal(c.Hints, []string{"ask it"}) }) {
		t.Errorf("nothing mends the reasons of %+v", trees)
	}
	req.Backend = "refuser"
	if _, err = e.Backends(t.Context(), req); !slices.Equal(engine.Hints(err), []string{"ask it", "snapfs doctor"}) {
		t.Errorf("%v has the hints %q", err, engine.Hints(err))
	}
}
