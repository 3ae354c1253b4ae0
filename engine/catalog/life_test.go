package catalog_test

import (
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
)

func TestAgeIgnoresClockChanges(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(wall time.Duration, boot string, up time.Duration) catalog.Instant {
		return catalog.Instant{Wall: made.Add(wall), Boot: boot, Up: up}
	}
	unsure := func(i catalog.Instant) catalog.Instant { i.Unsure = true; return i }
	year := 365 * 24 * time.Hour
	for _, c := range []struct {
		name  string
		notes []catalog.Instant // after the first, at 0
		now   catalog.Instant
		want  time.Duration
	}{
		{"an hour", nil, at(time.Hour, "a", 3*time.Hour), time.Hour},
		{"set forward", nil, at(year, "a", 3*time.Hour), time.Hour},
		{"set back", nil, at(-year, "a", 3*time.Hour), time.Hour},
		{"booted again", nil, at(time.Hour, "b", time.Second), time.Hour},
		{"booted again, set back", nil, at(-year, "b", time.Second), 0},
		{"booted again, the clock unsure", nil, unsure(at(year, "b", time.Minute)), time.Minute},
		{"unsure in one boot", nil, unsure(at(year, "a", 3*time.Hour)), time.Hour},
		{
			"noted while it was unsure, booted again",
			[]catalog.Instant{unsure(at(-year, "a", 3*time.Hour))},
			at(0, "b", time.Minute), time.Hour + time.Minute,
		},
		{
			"set right, noted, booted again",
			[]catalog.Instant{at(year, "a", 3*time.Hour)},
			at(year+time.Hour, "b", time.Second), 2 * time.Hour,
		},
		{
			"two boots",
			[]catalog.Instant{at(time.Hour, "b", time.Minute), at(-year, "b", 2*time.Minute)},
			at(-year, "b", 3*time.Minute), time.Hour + 2*time.Minute,
		},
	} {
		r := &catalog.Record{Created: made}
		for _, note := range append([]catalog.Instant{at(0, "a", 2*time.Hour)}, c.notes...) {
			r.RecordAge(note)
		}
		if got := r.AgeAt(c.now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	old := &catalog.Record{Created: made} // by a version that recorded no age
	if got := old.AgeAt(at(time.Hour, "a", 0)); got != time.Hour {
		t.Errorf("without a note: %v", got)
	}
	if got := old.AgeAt(unsure(at(year, "a", time.Minute))); got != time.Minute {
		t.Errorf("without a note, the clock unsure: %v", got)
	}
}

func TestEndIsDueByTheReliableClock(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(wall time.Duration, boot string, up time.Duration) catalog.Instant {
		return catalog.Instant{Wall: made.Add(wall), Boot: boot, Up: up}
	}
	c, err := catalog.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord("brief")
	r.Created = made
	r.Policy.Limits = catalog.Limits{TTL: time.Hour, RemoveAfter: time.Hour}
	if err := c.NoteEnd(r, at(0, "this-boot", time.Minute)); err != nil {
		t.Fatal(err)
	}
	ends, err := c.Ends()
	if err != nil || len(ends) != 1 || ends[0].Name != "brief" || ends[0].ID != r.ID {
		t.Fatalf("%+v, %v", ends, err)
	}
	for now, want := range map[catalog.Instant]bool{
		at(time.Hour, "this-boot", time.Hour):                       false,
		at(1000*time.Hour, "this-boot", time.Hour):                  false, // set forward
		at(-1000*time.Hour, "this-boot", 2*time.Hour+2*time.Minute): true,  // set back
		at(time.Hour, "next-boot", 1000*time.Hour):                  false,
		at(2*time.Hour+time.Minute, "next-boot", time.Second):       true,
	} {
		if got := ends[0].Due(now); got != want {
			t.Errorf("due at %v: %v", now, got)
		}
	}
	if err := ends[0].Drop(); err != nil {
		t.Error(err)
	}
	if ends, err := c.Ends(); len(ends) != 0 || err != nil {
		t.Errorf("dropped: %+v, %v", ends, err)
	}
}
