package race

import (
	"context"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/admission"
)

func TestAnAttemptThatIsNotBegunGivesItsPlaceBack(t *testing.T) {
	dir := t.TempDir()
	book := admission.Open(dir+"/admission", dir, nil)
	place, err := book.Enter(t.Context(), admission.Request{}, admission.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	e, err := engine.Open(t.Context(), engine.Config{State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	m := &coordinator{Race: &Race{e: New(e), Attempts: make([]Attempt, 1)}}
	l := &attemptRunner{m: m, s: &engine.Session{Engine: e}, place: place}
	l.run(stopped)
	if m.Attempts[0].State != Stopped || place.Held() {
		t.Errorf("%s, its place held: %v", m.Attempts[0].State, place.Held())
	}
}
