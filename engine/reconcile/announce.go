package reconcile

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/leak"
)

// announce appends an event about a sandbox to the state directory's event log; kind is a type of package events.
func (rc *Reconciler) announce(kind string, rec *catalog.Record, data events.Data) {
	rc.events.Append(events.Event{Type: kind, Subject: rec.Name, SandboxID: rec.ID, Data: data})
}

// witness stores signed evidence of an act on a sandbox, an event of type kind, before it. An error forbids the act.
func (rc *Reconciler) witness(kind string, rec *catalog.Record, data events.Data) error {
	return rc.events.Before(events.Event{Type: kind, Subject: rec.Name, SandboxID: rec.ID, Data: data})
}

// witnessTurn stores signed evidence of an undo or redo, u, before it happens. An error forbids it. note may be nil.
func (rc *Reconciler) witnessTurn(kind string, note *promotedNote, u *Undone) error {
	turning := events.Event{Type: kind, Subject: u.Sandbox, Data: events.Data{Promotion: u.ID}}
	if note != nil {
		turning.SandboxID = note.ID
	}
	return rc.events.Before(turning)
}

// announceRefusal writes the event that a promotion was refused with err: for conflicts, approvals or labelled content.
func (rc *Reconciler) announceRefusal(c *Promotion, err error) {
	if len(c.Plan.Labelled) > 0 {
		_ = leak.Announce(c.Rec, rc.events, err) // err, which the caller returns
		return
	}
	refused := events.Data{Target: c.Plan.Target, Changes: len(c.Plan.Conflicts), Reason: "conflicts"}
	for _, conflict := range c.Plan.Conflicts {
		refused.AddPath(conflict.Path)
	}
	if len(c.Plan.Conflicts) == 0 {
		refused.Reason, refused.Changes = "changes that need approval", len(c.Plan.NeedsApproval)
		for _, a := range c.Plan.NeedsApproval {
			refused.AddPath(a.Path)
		}
	}
	rc.announce(events.ApprovalAsked, c.Rec, refused)
}

// announceTurn appends the event of u, an undo or redo that is done, to the event log. note may be nil.
func (rc *Reconciler) announceTurn(kind string, note *promotedNote, u *Undone) {
	data := events.Data{Promotion: u.ID, Changes: u.Changes}
	if len(u.Paths) > 0 {
		data.Target = u.Paths[0]
	}
	turned := events.Event{Type: kind, Subject: u.Sandbox, Data: data}
	if note != nil {
		turned.SandboxID = note.ID
	}
	rc.events.Append(turned)
}
