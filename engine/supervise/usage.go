package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/undo"
	"github.com/snapfs/snapfs/limits"
)

// Usage holds the resource usage of all processes of a sandbox. Unknown values are nil. Sizes are in bytes.
type Usage struct {
	Memory     *int64         `json:"memory,omitempty"`
	MemoryPeak *int64         `json:"memory_peak,omitempty"`
	CPUTime    *time.Duration `json:"cpu_time_ns,omitempty"`
	// Throttled is the total time for which the CPU limit delayed the processes.
	Throttled *time.Duration `json:"throttled_ns,omitempty"`
	PIDs      *int64         `json:"pids,omitempty"`
	PIDsPeak  *int64         `json:"pids_peak,omitempty"`
	Read      *int64         `json:"io_read,omitempty"`
	Written   *int64         `json:"io_written,omitempty"`
	ReadOps   *int64         `json:"io_read_ops,omitempty"`
	WriteOps  *int64         `json:"io_write_ops,omitempty"`
	// Disk and Inodes are what all trees have added to their bases, as it counts for the
	// limits in the fields beside them.
	Disk        *int64 `json:"disk,omitempty"`
	DiskLimit   *int64 `json:"disk_limit,omitempty"`
	Inodes      *int64 `json:"inodes,omitempty"`
	InodesLimit *int64 `json:"inodes_limit,omitempty"`
	// Pressure is the share of the last ten seconds in which some, and in which all, processes
	// waited for CPU, memory or I/O, in percent.
	Pressure map[string]Pressure `json:"pressure,omitempty"`
	// Held lists how each limit is enforced.
	Held []HeldLimit `json:"held,omitempty"`
}

// Pressure is the share of the last ten seconds, in percent, in which some, or all, processes of a sandbox waited for
// a resource.
type Pressure struct {
	Some float64 `json:"some"`
	Full float64 `json:"full"`
}

// A HeldLimit reports how one limit of a sandbox is enforced: by "cgroup v2", "cgroup v1", "rlimit", "watched"
// (snapfs polls the usage) or "nothing".
type HeldLimit struct {
	Limit string `json:"limit"`
	Value string `json:"value"`
	By    string `json:"by"`
	Note  string `json:"note,omitempty"`
}

// UsageOf returns the resource usage of a sandbox, or nil if it is not running. Errors: errs.ErrNotFound; ErrBusy if
// its supervisor does not reply.
func (sv *Manager) UsageOf(ctx context.Context, name string) (*Usage, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	t, err := sv.request(ctx, rec, Request{Usage: true})
	if err != nil || t == nil {
		return nil, err
	}
	return t.Usage, nil
}

// SetLimits applies change to the limits of a sandbox, also for its running processes, and returns the new limits.
// Errors: errs.ErrNotFound, ErrBusy, ErrNotSupported, ErrInvalid; after an error all previous limits apply, the disk
// limit included.
func (sv *Manager) SetLimits(ctx context.Context, name string, change func(*catalog.Limits) error) (_ catalog.Limits, err error) {
	h, err := sv.Hold(ctx, name, "limiting")
	if err != nil {
		return catalog.Limits{}, err
	}
	defer h.Release()
	was, now := h.Policy.Limits, h.Policy.Limits
	if err := change(&now); err != nil || now == was {
		return was, err
	}
	if err := sandbox.RefuseEnded(h.Record); err != nil {
		return was, err
	}
	if err := errors.Join(hostfs.ForProcesses(now).Check(), sandbox.TimesFit(now), refusedBySite(name, h.Policy, now)); err != nil {
		return was, err
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	later := context.WithoutCancel(ctx)
	if err := sv.sandboxes.LimitTrees(ctx, h.Record, was, now); err != nil {
		return was, err
	}
	back.Push("restore the disk limit", func() error { return sv.sandboxes.LimitTrees(later, h.Record, now, was) })
	if err := sv.sandboxes.FitsDisk(h.Record, now); err != nil {
		return was, err
	}
	noted := *h.Record
	noted.RecordAge(catalog.Now())
	noted.Policy.Limits = now
	if err := sv.cat.NoteEnd(&noted, noted.Life.At); err != nil {
		return was, err
	}
	t, err := sv.request(ctx, h.Record, Request{Limits: &now})
	if err != nil {
		return was, err
	}
	back.Push("restore the limits of the running container", func() error { _, err := sv.request(later, h.Record, Request{Limits: &was}); return err })
	if h.Paused = nil; t != nil {
		h.Paused = t.Paused
	}
	if h.Run != nil && now.RemoveAfter != was.RemoveAfter {
		h.Run.Unclaimed = false // somebody has decided how long it stays
	}
	h.Life, h.Policy.Limits = noted.Life, now
	if err := h.Save(); err != nil {
		return was, err
	}
	back.Release()
	return now, nil
}

// setLimits changes the limits of the running sandbox to l for a client. The client saves the new limits when it gets
// the reply. If it cannot get the reply, setLimits restores the previous limits.
func (h *Supervisor) setLimits(client *fdsock.Conn, l catalog.Limits) {
	was, err := h.Resources.set(context.Background(), l)
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		return
	}
	h.deadlines.set(l)
	if !send(client, Reply{Paused: h.Resources.paused.Load()}) {
		if _, err := h.Resources.set(context.Background(), was); err == nil {
			h.deadlines.set(was)
		}
	}
}

// reportUsage sends a client the resource usage of the sandbox, and how each limit is enforced.
func (h *Supervisor) reportUsage(client *fdsock.Conn) {
	u, err := h.Resources.Group.Usage()
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		return
	}
	usage := usageFrom(&u)
	h.Resources.diskUsage(usage)
	for _, l := range h.Resources.Group.Level() {
		usage.Held = append(usage.Held, HeldLimit{string(l.Part), l.Value, string(l.By), l.Note})
	}
	send(client, Reply{Usage: usage, Hit: h.Resources.limitHit()})
}

// usageFrom converts the usage that package limits measured into the form that is sent to clients.
func usageFrom(u *limits.Usage) *Usage {
	usage := &Usage{
		Memory: valueOf(u.Memory), MemoryPeak: valueOf(u.MemoryPeak), CPUTime: valueOf(u.CPUTime), Throttled: valueOf(u.Throttled),
		PIDs: valueOf(u.PIDs), PIDsPeak: valueOf(u.PIDsPeak), Read: valueOf(u.Read), Written: valueOf(u.Written), ReadOps: valueOf(u.ReadOps), WriteOps: valueOf(u.WriteOps),
		Pressure: map[string]Pressure{},
	}
	for of, p := range map[string]limits.Known[limits.Pressure]{"cpu": u.PressureCPU, "memory": u.PressureMemory, "io": u.PressureIO} {
		if p.OK {
			usage.Pressure[of] = Pressure(p.Value)
		}
	}
	return usage
}

// valueOf returns a pointer to a measured value, or nil if it is not known.
func valueOf[T any](k limits.Known[T]) *T {
	if !k.OK {
		return nil
	}
	return &k.Value
}
