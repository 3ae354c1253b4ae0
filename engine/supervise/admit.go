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

// Admission holds the conditions for starting a sandbox. Its zero value starts at once unless
// the host is almost out of resources. A running sandbox already has its slot, so that further
// commands in it need none.
type Admission = admission.Options

// Admit waits in the queue for a slot with these limits, as when says. The caller closes the
// slot when the sandbox's last process has ended.
func (sv *Manager) Admit(ctx context.Context, l catalog.Limits, when Admission) (*admission.Slot, error) {
	return sv.book.Enter(ctx, slotRequest(l), when)
}

// ReleaseSlot frees an unused slot. If the slot's file cannot be removed, ReleaseSlot reports
// a notice and no error, because the slot is free all the same.
func (sv *Manager) ReleaseSlot(p *admission.Slot) {
	if err := p.Close(); err != nil {
		sv.notice("done, but the file of an admission slot stays: " + err.Error())
	}
}

// slotRequest returns the capacity that a sandbox with these limits reserves.
func slotRequest(l catalog.Limits) admission.Request {
	return admission.Request{Memory: l.Memory, Disk: l.Disk, Processors: l.CPUs}
}

// ApplyCeiling returns h with its capacity lowered to the limits of this process's own control
// groups.
func ApplyCeiling(h admission.Host) (admission.Host, error) {
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

// admitTo waits for a slot for an existing sandbox. It returns nil if the sandbox already
// runs. It returns an error at once if the sandbox may not start because its time is over.
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

// AdmitNew checks a request's name and workspace, then waits for a slot for the sandbox that
// the request describes.
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

// NameFits returns an error if no sandbox can get this name. It saves a caller from waiting in
// the queue for nothing; for a request that does not wait it checks nothing.
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
