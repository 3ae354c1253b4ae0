package sandbox

import (
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// Overdue reports whether a sandbox of this age has reached its limit ttl, after which it is paused and no
// command starts in it.
func Overdue(l catalog.Limits, age time.Duration) bool { return l.TTL > 0 && age >= l.TTL }

// RefuseOverdue returns ErrDenied if no command may start in a sandbox at the time now: it has reached its
// limit ttl or remove-after, or has ended, that is, its files stay after remove-after but nothing runs any
// more.
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

// endedWhy returns, for an error message, when and by which limit a sandbox ended. An ended sandbox starts no
// more commands.
func endedWhy(rec *catalog.Record) string {
	return "the sandbox ended at " + rec.Ended.When.Format(time.RFC3339) + " (remove-after " + rec.Ended.Value + ")"
}

// RefuseEnded returns an error if a sandbox has ended, so that no command starts in it any more and limits
// would have no effect. The error has no kind: neither the user nor the host is the cause.
func RefuseEnded(rec *catalog.Record) error {
	if rec.Ended == nil {
		return nil
	}
	return &errs.Error{
		Op: "limiting", Path: rec.Name, Err: errors.New(endedWhy(rec) + " and starts no more commands; a fork of it can have other limits"),
		Hints: []string{"snapfs fork " + rec.Name + "@" + rec.At, "snapfs rm " + rec.Name},
	}
}

// TimesFit returns ErrInvalid if the time limits of l contradict each other: keep-end, which retains the
// files at the age remove-after, is set without remove-after.
func TimesFit(l catalog.Limits) error {
	if l.KeepEnd && l.RemoveAfter == 0 {
		return &errs.Error{
			Op: "limiting keep-end", Kind: errs.ErrInvalid, Err: errors.New("keep-end requires remove-after"),
			Hints: []string{"snapfs new --remove-after 24h --keep-end", "snapfs limits SANDBOX --set remove-after=24h --set keep-end=true"},
		}
	}
	return nil
}

// longerTTL returns, for a hint, a value of the limit ttl that lets a sandbox of this age continue: twice its
// present ttl, or "none".
func longerTTL(ttl, age time.Duration) string {
	if 2*ttl <= age {
		return "none"
	}
	return units.FormatDuration(2 * ttl)
}

// TTLHit returns the fields of the message which says that a sandbox was paused because it reached its limit
// ttl, the greatest age at which it runs.
func TTLHit(l catalog.Limits) catalog.LimitHit {
	ttl := units.FormatDuration(l.TTL)
	return catalog.LimitHit{Limit: "ttl", Value: ttl, Text: "ttl: the sandbox has lived for " + ttl}
}

// RemoveHit returns the message data for a sandbox that was removed or ended because it reached its limit
// remove-after.
func RemoveHit(l catalog.Limits) catalog.LimitHit {
	after := units.FormatDuration(l.RemoveAfter)
	since := "the sandbox was made"
	if l.TTL > 0 {
		since = "its ttl of " + units.FormatDuration(l.TTL)
	}
	return catalog.LimitHit{Limit: "remove-after", Value: after, Text: "remove-after: " + after + " after " + since}
}

// IdleHit returns the message data for a sandbox that was paused because nothing happened in it for the time
// of its limit idle.
func IdleHit(l catalog.Limits) catalog.LimitHit {
	idle := units.FormatDuration(l.Idle)
	return catalog.LimitHit{Limit: "idle", Value: idle, Text: "idle: nothing has happened in the sandbox for " + idle}
}

// PausedNote returns the message for the user that the sandbox called name, of this age and with the limits l, was
// paused because of the limit why, and how to resume it.
func PausedNote(name string, why catalog.LimitHit, l catalog.Limits, age time.Duration) string {
	how := "resume it: snapfs exec " + name + " -- true"
	if why.Limit == "ttl" {
		how = "resume it: snapfs limits " + name + " --set ttl=" + longerTTL(l.TTL, age)
	}
	return "paused: " + why.Limit + " " + why.Value + "; " + how + "; end it: snapfs rm " + name
}

// Expired reports whether a sandbox has reached, at now, the age at which its limits ttl and remove-after
// remove it.
func Expired(rec *catalog.Record, now catalog.Instant) bool {
	end := rec.Policy.Limits.RemovalAge()
	return end > 0 && rec.AgeAt(now) >= end
}
