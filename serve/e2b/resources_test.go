package e2b

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
)

// TestOnlyTheResourcesOfGoneSandboxesAreClosed: not those of a sandbox that is made while the records are read, and
// none while a record cannot be read. Cost: twenty milliseconds.
func TestOnlyTheResourcesOfGoneSandboxesAreClosed(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	var s *Server
	enter := func(id string) *resources { return s.resourcesOf(&opened{Record: &catalog.Record{ID: id}}) }
	meanwhile := func() {}
	s = &Server{ctx: t.Context(), resources: map[string]*resources{}, o: Options{Open: func(ctx context.Context) (*engine.Engine, error) {
		meanwhile()
		return engine.Open(ctx, engine.Config{State: state})
	}}}
	e, err := engine.Open(t.Context(), engine.Config{State: state})
	if err != nil {
		t.Fatal(err)
	}
	here := &catalog.Record{ID: catalog.NewID(), Name: "here", State: catalog.Ready, Created: time.Now(), Workspace: "/w"}
	unread := &catalog.Record{ID: catalog.NewID(), Name: "unread", State: catalog.Ready, Created: time.Now(), Workspace: "/w"}
	for _, rec := range []*catalog.Record{here, unread} {
		if err := e.Catalog().Create(rec); err != nil {
			t.Fatal(err)
		}
		enter(rec.ID)
	}
	gone := enter("gone")

	path := filepath.Join(e.Catalog().Path("unread"), "record.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.closeGone(t.Context()); err == nil || len(s.resources) != 3 {
		t.Errorf("a record that cannot be read: %v, of %d sandboxes, not 3", err, len(s.resources))
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	meanwhile = func() { enter("new") }
	if err := s.closeGone(t.Context()); err != nil {
		t.Error(err)
	}
	if s.resources["gone"] != nil || !gone.closed {
		t.Error("the resources of a sandbox that is gone are open")
	}
	for _, id := range []string{here.ID, unread.ID, "new"} {
		if r := s.resources[id]; r == nil || r.closed {
			t.Errorf("the resources of %s are closed", id)
		}
	}
}
