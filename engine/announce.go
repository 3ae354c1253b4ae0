package engine

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
)

// announce appends an event about a sandbox to the stream of events.
func (e *Engine) announce(kind string, rec *catalog.Record, data events.Data) {
	e.events.Append(events.Event{Type: kind, Subject: rec.Name, SandboxID: rec.ID, Data: data})
}

// witness has an act on a sandbox witnessed; an error refuses the act.
func (e *Engine) witness(kind string, rec *catalog.Record, data events.Data) error {
	return e.events.Before(events.Event{Type: kind, Subject: rec.Name, SandboxID: rec.ID, Data: data})
}

// announceRename announces, under the old name, that a sandbox has another name.
func (e *Engine) announceRename(rec *catalog.Record, to string) {
	e.announce(events.SandboxRenamed, rec, events.Data{Name: to})
}
