package supervise

import (
	"errors"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
)

// TestASupervisorWithoutASocketIsAskedToStopOnceItHasOne lets a supervisor, here this process, be entered in the
// sandbox's record before it serves, as while its container starts.
func TestASupervisorWithoutASocketIsAskedToStopOnceItHasOne(t *testing.T) {
	cat, err := catalog.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	rec := &catalog.Record{ID: catalog.NewID(), Name: "s", State: catalog.Ready, Supervisor: &self}
	if err := cat.Create(rec); err != nil {
		t.Fatal(err)
	}
	intent, err := cat.Begin(catalog.Supervising, rec.Name, rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	sv := &Manager{cat: cat}
	ended := make(chan error, 1)
	go func() { ended <- sv.end(t.Context(), rec) }()
	time.Sleep(20 * time.Millisecond) // until it has found no socket; if it is slower, the test proves less
	l, err := fdsock.Listen(sv.socket(rec.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ready, err := l.Await(20 * time.Second); !ready || err != nil {
		t.Fatal("nobody asks the supervisor to stop: ", err)
	}
	client, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := intent.End(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(client.Close(), <-ended); err != nil {
		t.Error(err)
	}
}
