package engine

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
)

// announce appends an event about a sandbox, such as its renaming or a rollback, to the event log of the
// state directory. kind is one of the event types of package events. An event that cannot be written is lost;
// the user gets a notice of the first one.
func (e *Engine) announce(kind string, rec *catalog.Record, data events.Data) {
	e.events.Append(events.Event{Type: kind, Subject: rec.Name, SandboxID: rec.ID, Data: data})
}

// witness passes an act on a sandbox, such as a rollback, to Config.Witness before it happens, to be stored
// in the sandbox's signed evidence log. kind is one of the event types of package events. After an error the
// caller must not act.
func (e *Engine) witness(kind string, rec *catalog.Record, data events.Data) error {
	return e.events.Before(events.Event{Type: kind, Subject: rec.Name, SandboxID: rec.ID, Data: data})
}

// announceRename appends the event that a sandbox was renamed to the event log. rec still has the old name.
func (e *Engine) announceRename(rec *catalog.Record, to string) {
	e.announce(events.SandboxRenamed, rec, events.Data{Name: to})
}
