package supervise

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/limits"
)

// Admission holds the conditions under which a new container of a sandbox may start: for how long it waits in
// the queue, and with which priority. Its zero value starts at once unless the host is almost out of
// resources. Commands in a sandbox that runs already do not wait.
type Admission = admission.Options

// Admit waits in the queue for an admission slot, a reserved share of the host, for a sandbox with the limits l; when
// says for how long. The caller closes the slot when the sandbox's last process has ended.
func (sv *Manager) Admit(ctx context.Context, l catalog.Limits, when Admission) (*admission.Slot, error) {
	return sv.book.Enter(ctx, resources.SlotRequest(l), when)
}

// ReleaseSlot frees an unused admission slot, a reserved share of the host. If the slot's file cannot be removed,
// ReleaseSlot reports a notice and no error, because the slot is free all the same.
func (sv *Manager) ReleaseSlot(p *admission.Slot) {
	if err := p.Close(); err != nil {
		sv.notice("done, but the file of an admission slot stays: " + err.Error())
	}
}

// ApplyCeiling returns the capacity h of the host, lowered to the memory and CPUs that the control groups of this
// process allow. Admission counts with that, for example inside a container with a memory limit.
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

// admitTo waits for an admission slot in which an existing sandbox starts. It returns nil if the sandbox already
// runs, and an error at once if the sandbox may not start because it has reached its ttl or end.
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

// AdmitNew waits for an admission slot for the sandbox that a request describes. If the request may have to wait,
// AdmitNew first checks its name and workspace, so that a wrong request fails at once.
func (sv *Manager) AdmitNew(ctx context.Context, req hostfs.Request) (*admission.Slot, error) {
	if !req.Admission.Plain() {
		err := sv.NameFits(req.Name, req.Admission)
		if err == nil {
			err = sv.host.CheckWorkspace(req.Workspace)
		}
		if err != nil {
			return nil, err
		}
	}
	return sv.Admit(ctx, req.Policy.Limits, req.Admission)
}

// NameFits returns an error if a new sandbox cannot get this name, before a wait in the queue for an admission slot,
// which would be in vain. For an empty name, or a request that does not wait, it checks nothing.
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
