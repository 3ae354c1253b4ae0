package supervise

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/limits"
)

// Admission says under which circumstances a sandbox is started; its zero value: now,
// unless next to nothing is left of this host. A sandbox in which something runs has its
// place: whatever else is started in it needs none.
type Admission = admission.Options

// Admit waits for room for a sandbox with these limits, as is asked for. The caller
// closes the place when nothing runs in the sandbox any more.
func (sv *Manager) Admit(ctx context.Context, l catalog.Limits, when Admission) (*admission.Slot, error) {
	return sv.book.Enter(ctx, slotRequest(l), when)
}

// ReleaseSlot gives a place back in which nothing runs. It is free then, even where its
// file stays: so that is told, and no error of what was done.
func (sv *Manager) ReleaseSlot(p *admission.Slot) {
	if err := p.Close(); err != nil {
		sv.notice("done, but the file of its place stays: " + err.Error())
	}
}

func slotRequest(l catalog.Limits) admission.Request {
	return admission.Request{Memory: l.Memory, Disk: l.Disk, Processors: l.CPUs}
}

// BeneathCeiling is what the control groups of this process leave of a host.
func BeneathCeiling(h admission.Host) (admission.Host, error) {
	c, err := limits.CeilingHere()
	if err != nil {
		return h, err
	}
	if c.Memory.OK {
		h.Memory, h.MemoryFree = min(h.Memory, c.Memory.Value), min(h.MemoryFree, c.MemoryLeft.Value)
	}
	if c.CPUs.OK {
		h.Processors = min(h.Processors, c.CPUs.Value)
	}
	return h, nil
}

// admitTo waits for room for a sandbox that is there, as is asked for. nil where
// something runs in it by then. What may not be started does not wait.
func (sv *Manager) admitTo(ctx context.Context, name string, when Admission) (*admission.Slot, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	if err := sandbox.RefuseOverdue(rec, catalog.Now()); err != nil {
		return nil, err
	}
	conn, err := sv.Dial(ctx, rec)
	if err != nil {
		return nil, err
	}
	if conn != nil {
		return nil, conn.Close()
	}
	return sv.Admit(ctx, rec.Policy.Limits, when)
}

// AdmitNew waits for room to make a sandbox from a request, as that asks for it.
func (sv *Manager) AdmitNew(ctx context.Context, req hostfs.Request) (*admission.Slot, error) {
	err := sv.NameFits(req.Name, req.Admission)
	if err == nil && !req.Admission.Plain() {
		err = sv.host.CheckWorkspace(req.Workspace)
	}
	if err != nil {
		return nil, err
	}
	return sv.Admit(ctx, req.Policy.Limits, req.Admission)
}

// NameFits refuses a name that no sandbox can get, before one waits for room with it.
func (sv *Manager) NameFits(name string, when Admission) error {
	if name == "" || when.Plain() {
		return nil
	}
	if err := catalog.CheckName(name); err != nil {
		return err
	}
	if sv.cat.Claimed(name) {
		return &errs.Error{Op: "making", Path: name, Kind: errs.ErrExists, Err: errors.New("the name is taken"), Hints: []string{"snapfs rm " + name}}
	}
	return nil
}
