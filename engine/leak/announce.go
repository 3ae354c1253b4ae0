package leak

import (
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// refusedResult is the name, in an event that the policy of a sandbox refused something, of a refused promotion.
const refusedResult = "result"

// Announce adds an event to the state directory's event log if err, with which a promotion of the sandbox rec ended, is
// an errs.ErrDenied: the result has content that may not leave the sandbox. The event has the paths that err names, and
// the reason for the first. For another err it adds none. It returns err.
func Announce(rec *catalog.Record, log *events.Log, err error) error {
	var refused *errs.Error
	if !errors.Is(err, errs.ErrDenied) || !errors.As(err, &refused) {
		return err
	}
	d := events.Data{Name: refusedResult}
	list := []error{refused}
	if joined, ok := refused.Err.(interface{ Unwrap() []error }); ok { // as RefuseLabelled returns it
		list = joined.Unwrap()
	}
	for _, one := range list {
		var e *errs.Error
		if !errors.As(one, &e) || e.Path == "" {
			continue
		}
		if d.AddPath(e.Path); d.Reason == "" {
			d.Reason = e.Err.Error()
		}
	}
	log.Append(events.Event{Type: events.AccessRefused, Subject: rec.Name, SandboxID: rec.ID, Data: d})
	return err
}
