package sandbox

import (
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// Overdue reports whether a sandbox has reached its ttl.
func Overdue(l catalog.Limits, age time.Duration) bool { return l.TTL > 0 && age >= l.TTL }

// RefuseOverdue returns an error if no command may start in a sandbox because its time is
// over.
func RefuseOverdue(rec *catalog.Record, now catalog.Instant) error {
	l, age := rec.Policy.Limits, rec.AgeAt(now)
	refuse := func(why string, hints ...string) error {
		return &errs.Error{Op: "entering", Path: rec.Name, Kind: errs.ErrDenied, Err: errors.New(why), Hints: hints}
	}
	at := func(end time.Duration) string { return now.Wall.Add(end - age).Format(time.RFC3339) }
	switch {
	case rec.Ended != nil:
		return refuse(endedWhy(rec), "snapfs fork "+rec.Name+"@"+rec.At, "snapfs diff "+rec.Name, "snapfs rm "+rec.Name)
	case Expired(rec, now):
		return refuse("the sandbox ended at " + at(l.RemovalAge()) + " (remove-after " + units.FormatDuration(l.RemoveAfter) + ")")
	case Overdue(l, age):
		return refuse("the sandbox's time was over at "+at(l.TTL)+" (ttl "+units.FormatDuration(l.TTL)+")",
			"snapfs limits "+rec.Name+" --set ttl="+longerTTL(l.TTL, age), "snapfs promote "+rec.Name, "snapfs rm "+rec.Name)
	}
	return nil
}

// endedWhy returns a text with the time and cause of a sandbox's end.
func endedWhy(rec *catalog.Record) string {
	return "the sandbox ended at " + rec.Ended.When.Format(time.RFC3339) + " (remove-after " + rec.Ended.Value + ")"
}

// RefuseEnded returns an error if a sandbox has ended, so that setting its limits would have
// no effect. The error has no kind: neither the user nor the host is the cause.
func RefuseEnded(rec *catalog.Record) error {
	if rec.Ended == nil {
		return nil
	}
	return &errs.Error{
		Op: "limiting", Path: rec.Name, Err: errors.New(endedWhy(rec) + " and starts no more commands; a fork of it can have other limits"),
		Hints: []string{"snapfs fork " + rec.Name + "@" + rec.At, "snapfs rm " + rec.Name},
	}
}

// TimesFit returns an error for time limits that contradict each other.
func TimesFit(l catalog.Limits) error {
	if l.KeepEnd && l.RemoveAfter == 0 {
		return &errs.Error{
			Op: "limiting keep-end", Kind: errs.ErrInvalid, Err: errors.New("keep-end requires remove-after"),
			Hints: []string{"snapfs new --remove-after 24h --keep-end", "snapfs limits SANDBOX --set remove-after=24h --set keep-end=true"},
		}
	}
	return nil
}

// longerTTL returns the text of a ttl that lets a sandbox of this age continue: twice its ttl,
// or none.
func longerTTL(ttl, age time.Duration) string {
	if 2*ttl <= age {
		return "none"
	}
	return units.FormatDuration(2 * ttl)
}

// TTLHit returns the limit hit of a sandbox that has reached its ttl.
func TTLHit(l catalog.Limits) catalog.LimitHit {
	ttl := units.FormatDuration(l.TTL)
	return catalog.LimitHit{Limit: "ttl", Value: ttl, Text: "ttl: the sandbox has lived for " + ttl}
}

// RemoveHit returns the limit hit of a sandbox that has reached its remove-after time.
func RemoveHit(l catalog.Limits) catalog.LimitHit {
	after := units.FormatDuration(l.RemoveAfter)
	since := "the sandbox was made"
	if l.TTL > 0 {
		since = "its ttl of " + units.FormatDuration(l.TTL)
	}
	return catalog.LimitHit{Limit: "remove-after", Value: after, Text: "remove-after: " + after + " after " + since}
}

// IdleHit returns the limit hit of a sandbox that was idle for its limit.
func IdleHit(l catalog.Limits) catalog.LimitHit {
	idle := units.FormatDuration(l.Idle)
	return catalog.LimitHit{Limit: "idle", Value: idle, Text: "idle: nothing has happened in the sandbox for " + idle}
}

// PausedNote returns the message for the user when a sandbox was paused because of the limit
// why.
func PausedNote(name string, why catalog.LimitHit, l catalog.Limits, age time.Duration) string {
	how := "resume it: snapfs exec " + name + " -- true"
	if why.Limit == "ttl" {
		how = "resume it: snapfs limits " + name + " --set ttl=" + longerTTL(l.TTL, age)
	}
	return "paused: " + why.Limit + " " + why.Value + "; " + how + "; end it: snapfs rm " + name
}

// Expired reports whether a sandbox has reached its remove-after time.
func Expired(rec *catalog.Record, now catalog.Instant) bool {
	end := rec.Policy.Limits.RemovalAge()
	return end > 0 && rec.AgeAt(now) >= end
}
