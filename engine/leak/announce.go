package leak

import (
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// refusedResult is the Name of an AccessRefused event about a refused promotion.
const refusedResult = "result"

// Announce returns err, the error of a promotion of the sandbox rec. If err is an errs.ErrDenied, because the result
// has content that may not leave the sandbox, Announce first appends an event to log, with the paths that err names
// and the reason for the first of them.
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
