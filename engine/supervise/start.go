package supervise

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/supervise/ahead"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/isolate"
)

// Prepare creates the control groups of a policy, with I/O limits for the disk of workspace, and prepares a
// container in them, while the sandbox's trees are still being made; the caller passes both to Start. It
// takes over the admission slot, also after an error; if slot is nil, the sandbox is admitted at once.
func (sv *Manager) Prepare(ctx context.Context, workspace string, p catalog.Policy, command *isolate.Command, slot *admission.Slot) (*isolate.Prepared, *resources.Resources, error) {
	if err := policy.BoundBySite(&p); err != nil {
		return nil, nil, errors.Join(err, slot.Close())
	}
	allowed, err := sv.startResources(ctx, workspace, p, command == nil || p.Limits.Idle > 0, slot)
	if err != nil {
		return nil, nil, err
	}
	later, err := startsLater(p)
	if err != nil {
		return nil, nil, errors.Join(err, allowed.Close(context.WithoutCancel(ctx)))
	}
	if later || p.Prove { // the self-test comes first
		command = nil
	}
	spec := hostfs.Confinement(p, workspace)
	allowed.Bind(&spec)
	prepared, err := isolate.Prepare(ctx, spec, command)
	if err != nil {
		return nil, nil, errors.Join(allowed.StartError(ctx, err), allowed.Close(context.WithoutCancel(ctx)))
	}
	return prepared, allowed, nil
}

// prepareFirst prepares the container of a sandbox without a command as [Manager.Prepare] does. It uses the beginning
// that begun holds, if begun is not nil and the beginning fits.
func (sv *Manager) prepareFirst(ctx context.Context, rec *catalog.Record, slot *admission.Slot, begun *ahead.Container) (*isolate.Prepared, *resources.Resources, error) {
	p := rec.Policy
	if begun != nil && policy.BoundBySite(&p) == nil {
		if prepared, allowed := begun.Take(sv.cat, rec.Workspace, p, slot); prepared != nil {
			return prepared, allowed, nil
		}
	}
	return sv.Prepare(ctx, rec.Workspace, rec.Policy, nil, slot)
}

// startResources creates the control groups for a policy's limits; the caller closes the Resources. With count, usage
// is counted even without a limit, and limits can be set later. I/O limits apply to the disks of workspace and of the
// state directory. It takes over the admission slot, or admits the sandbox at once if slot is nil; after an error the
// slot is closed. Errors: those of [resources.Start] and [Manager.Admit].
func (sv *Manager) startResources(ctx context.Context, workspace string, p catalog.Policy, count bool, slot *admission.Slot) (*resources.Resources, error) {
	if slot == nil {
		var err error
		if slot, err = sv.Admit(ctx, p.Limits, Admission{}); err != nil {
			return nil, err
		}
	}
	return resources.Start(ctx, p, count, slot, workspace, sv.cat.Dir())
}

// startsLater reports whether a sandbox's first command starts in the finished container, and not with it: the proxy
// makes the placeholders of secrets first, programs are compared with their digests, and the [cmdbroker.Broker] of
// programs that are allowed with certain arguments needs the container. Errors: those of [hostfs.Brokered].
func startsLater(p catalog.Policy) (bool, error) {
	brokered, err := hostfs.Brokered(p)
	return brokered || p.Tools.HasDigests() || p.Tools.HasArguments(), err
}

// A containerStart starts a sandbox's container for startContainer, in as many attempts as it needs.
type containerStart struct {
	manager   *Manager
	rec       *catalog.Record
	prepared  *isolate.Prepared    // nil: the next attempt prepares one
	resources *resources.Resources // nil: the next attempt starts them
	search    *hostfs.Search
	command   *isolate.Command // or nil
	retry     hostfs.MountRetry
	raised    bool // the disk limit is increased until the trees are mounted
}

// startContainer starts a sandbox's container, and command in it if command is not nil. prepared and allowed are a
// prepared container and its limits; whichever is nil is created here. search finds the host's secrets, to be hidden.
// An attempt that fails is repeated if filesystems were mounted or unmounted meanwhile. After an error the limits are
// closed.
func (sv *Manager) startContainer(ctx context.Context, rec *catalog.Record, prepared *isolate.Prepared, allowed *resources.Resources, search *hostfs.Search, command *isolate.Command) (*Supervisor, *isolate.Process, error) {
	s := &containerStart{manager: sv, rec: rec, prepared: prepared, resources: allowed, search: search, command: command}
	defer s.retry.Close()
	for {
		h, p, again, err := s.attempt(ctx)
		if err != nil {
			return nil, nil, s.abandon(ctx, err)
		}
		if !again {
			return h, p, nil
		}
		s.search = s.search.With(nil)
	}
}

// attempt tries once to start the sandbox's container. again means that the caller should call it again.
func (s *containerStart) attempt(ctx context.Context) (h *Supervisor, p *isolate.Process, again bool, err error) {
	sv := s.manager
	spec, notes, err := sv.host.Spec(ctx, s.rec, s.search)
	if err != nil && s.retry.Again(err) {
		return nil, nil, true, nil
	}
	if err == nil {
		err = s.prepare(ctx, &spec)
	}
	if err != nil {
		return nil, nil, false, errors.Join(err, s.prepared.Close())
	}
	mappers := &idMappers{program: sv.idMapper}
	if sv.idMapper != nil {
		spec.MapIDs = mappers.start
	}
	spec.Images = sv.cat.Images()
	tried, unobserved, err := attempts.Attach(s.rec, &spec, sv.events)
	if err != nil {
		return nil, nil, false, errors.Join(err, s.prepared.Close())
	}
	container, proc, err := s.prepared.Start(ctx, spec)
	s.prepared = nil
	if err != nil {
		mappers.wait()
		return nil, nil, true, s.recover(ctx, spec, err)
	}
	if s.raised {
		if err := sv.sandboxes.LimitForks(ctx, s.rec, s.rec.Policy.Limits); err != nil {
			return nil, nil, false, errors.Join(err, container.Close(context.WithoutCancel(ctx)))
		}
		s.raised = false
	}
	h = &Supervisor{
		Container: container, idMappers: mappers, Resources: s.resources, Mounts: spec.Mounts, Attempts: tried,
		notes: slices.Concat(notes, unobserved, s.resources.Unenforced(), idMappingNote(container.Level())),
	}
	h, p, err = sv.newSupervisor(ctx, s.rec, h, proc, s.command, spec.Hide)
	return h, p, false, err
}

// prepare creates the control groups of the sandbox's limits and prepares its container, if not done yet.
func (s *containerStart) prepare(ctx context.Context, spec *isolate.Spec) (err error) {
	if err := fault.Point(ctx, "start its processes"); err != nil {
		return err
	}
	if s.resources == nil {
		count := s.command == nil || s.rec.Policy.Limits.Idle > 0
		if s.resources, err = s.manager.startResources(ctx, s.rec.Workspace, s.rec.Policy, count, nil); err != nil {
			return err
		}
	}
	s.resources.Bind(spec)
	if s.prepared == nil {
		s.prepared, err = isolate.Prepare(ctx, *spec, s.command)
	}
	return err
}

// recover decides about a container that failed to start with err: it returns nil if another attempt may succeed.
// Before the second attempt it increases the disk limit, because the mounts of a full sandbox need some space.
func (s *containerStart) recover(ctx context.Context, spec isolate.Spec, err error) error {
	if errors.Is(err, isolate.ErrDigest) {
		attempts.RefusedContent(s.rec, s.manager.events, err)
		return err
	}
	var refused *errs.Error
	mounting := errors.As(err, &refused)
	if mounting && !s.raised && hostfs.LimitsDisk(s.rec.Policy.Limits) {
		s.raised = true
		if err := s.manager.sandboxes.RaiseDiskLimit(ctx, s.rec); err != nil {
			return err
		}
	} else if !mounting || s.resources.Killed() || !s.retry.Again(err) {
		return explainFullDisk(spec, err)
	}
	return s.manager.sandboxes.SyncTrees(ctx, s.rec) // of the mounts that succeeded
}

// abandon cleans up after the last failed attempt to start a container: it closes the limits and restores a disk
// limit that recover increased. It returns err, or the limit hit that caused it.
func (s *containerStart) abandon(ctx context.Context, err error) error {
	later := context.WithoutCancel(ctx)
	if s.resources != nil {
		err = errors.Join(s.resources.StartError(ctx, err), s.resources.Close(later))
	}
	if s.raised {
		err = errors.Join(err, s.manager.sandboxes.LimitForks(later, s.rec, s.rec.Policy.Limits))
	}
	return err
}

// Start starts a sandbox's container, then runs the self-test if the policy requires one, then starts command if it
// is not nil. The other parameters are those of startContainer. Errors: also ErrWall; rec.Proof then has the result
// of the self-test.
func (sv *Manager) Start(ctx context.Context, rec *catalog.Record, prepared *isolate.Prepared, allowed *resources.Resources, search *hostfs.Search, command *isolate.Command) (*Supervisor, *isolate.Process, error) {
	if err := errors.Join(policy.BoundBySite(&rec.Policy), leak.StoreLabels(sv.cat.Path(rec.Name), &rec.Policy)); err != nil {
		err = errors.Join(err, prepared.Close())
		if allowed != nil {
			err = errors.Join(err, allowed.Close(context.WithoutCancel(ctx)))
		}
		return nil, nil, err
	}
	later, err := startsLater(rec.Policy)
	switch {
	case err == nil && rec.Policy.Prove:
		return sv.startProved(ctx, rec, prepared, allowed, search, command)
	case err == nil && !later:
		return sv.startContainer(ctx, rec, prepared, allowed, search, command)
	}
	h, _, err := sv.startContainer(ctx, rec, prepared, allowed, search, nil)
	if err != nil {
		return nil, nil, err
	}
	p, err := h.first(ctx, command)
	if err != nil {
		return nil, nil, errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return h, p, nil
}

// startProved starts a sandbox as Start does, but runs the isolation self-test before the command.
func (sv *Manager) startProved(ctx context.Context, rec *catalog.Record, prepared *isolate.Prepared, allowed *resources.Resources, search *hostfs.Search, command *isolate.Command) (*Supervisor, *isolate.Process, error) {
	program := sv.copyProbe() // concurrently
	h, _, err := sv.startContainer(ctx, rec, prepared, allowed, search, nil)
	if err != nil {
		if unused, _ := program(); unused != nil {
			unused.Close()
		}
		return nil, nil, err
	}
	var p *isolate.Process
	if rec.Proof, err = sv.trySelfTest(ctx, rec, h, program); err == nil {
		p, err = h.first(ctx, command)
	}
	if err != nil {
		return nil, nil, errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return h, p, nil
}

// first starts the first command in a container that was started without one; command may be nil.
func (h *Supervisor) first(ctx context.Context, command *isolate.Command) (*isolate.Process, error) {
	if command == nil {
		return nil, nil //nolint:nilnil // there is no command
	}
	p, err := h.Start(ctx, *command)
	if err == nil {
		h.timers = append(h.timers, h.Resources.StartCountdown(p), h.deadlines.watchStreams(p.PTY(), command.Stdin, command.Stdout, command.Stderr))
	}
	return p, err
}

// copyProbe starts to copy the probe program of the self-test into memory, from where the sandbox can run it. The
// returned function waits for the copy.
func (sv *Manager) copyProbe() func() (*os.File, error) {
	type answer struct {
		program *os.File
		err     error
	}
	copied := make(chan answer, 1)
	go func() {
		if len(sv.probe) == 0 {
			copied <- answer{err: errors.New("this program has no probe program")}
			return
		}
		program, err := proc.SealedCopy(sv.probe[0])
		copied <- answer{program, err}
	}()
	return func() (*os.File, error) {
		a := <-copied
		return a.program, a.err
	}
}

// newSupervisor completes the Supervisor of a container that has just started. It starts everything that
// serves the running sandbox: limits, network proxy, maintenance, time limits and reports of drift, which
// leave out the paths hide. p is the process of command, or nil. After an error the container is closed.
func (sv *Manager) newSupervisor(ctx context.Context, rec *catalog.Record, h *Supervisor, p *isolate.Process, command *isolate.Command, hide []string) (*Supervisor, *isolate.Process, error) {
	h.Hidden = hide
	if err := h.Resources.Attach(h.Container); err != nil && h.alive() { // it may have ended
		return nil, nil, errors.Join(err, h.Container.Close(context.WithoutCancel(ctx)))
	}
	h.deadlines = sv.startDeadlines(h, rec) // before the proxy, whose first refusal may pause the sandbox
	if strings.HasPrefix(rec.Policy.Network, hostfs.AllowNet) {
		h.Journal = sv.egress.JournalOf(rec)
		h.Journal.OnRefusal, h.Journal.OnSpent = sv.refusals(rec, h), sv.spentHandler(rec, h)
		h.Journal.OnAsked = sv.questions(rec, h)
		var err error
		if h.Proxy, err = sv.egress.OpenProxy(rec, h.Container, h.Journal); err != nil {
			return nil, nil, errors.Join(err, h.Container.Close(context.WithoutCancel(ctx)))
		}
	}
	if err := sv.startBroker(rec, h); err != nil {
		return nil, nil, errors.Join(err, h.Container.Close(context.WithoutCancel(ctx)))
	}
	h.Resources.Disk = sv.sandboxes.GaugeOf(rec)
	h.timers = append(h.timers, sv.sandboxes.StartMaintenance(rec))
	h.timers = append(h.timers, sv.startManifest(rec))
	h.Monitor = sv.serverMonitorOf(rec)
	h.timers = append(h.timers, h.Monitor.watch(func() { _ = h.Container.Close(context.Background()) })) // the goroutine that waits for its end does the rest
	if p != nil {
		h.timers = append(h.timers, h.Resources.StartCountdown(p), h.deadlines.watchStreams(p.PTY(), command.Stdin, command.Stdout, command.Stderr))
	}
	sv.startDriftFeed(h, rec, hide)
	sv.snapshotAtDrift(rec, h)
	return h, p, nil
}

// ReportNotes shows the user the notices of a sandbox's start: differences from its state at creation, trees
// that a slower id mapper serves, and limits that are not enforced.
func (sv *Manager) ReportNotes(h *Supervisor) {
	for _, note := range h.notes {
		sv.notice(note)
	}
}

// explainFullDisk replaces the error of a failed mount by errs.ErrNoSpace if the disk with an overlay's upper
// directory is full: the kernel does not return ENOSPC then.
func explainFullDisk(spec isolate.Spec, err error) error {
	for _, m := range spec.Mounts {
		var fs syscall.Statfs_t
		if m.Overlay == nil || m.Overlay.Upper == "" || syscall.Statfs(m.Overlay.Upper, &fs) != nil {
			continue
		}
		if fs.Bavail < 16 || fs.Files > 0 && fs.Ffree == 0 { // ext4 reserves some free blocks even from root
			return &errs.Error{
				Op: "mounting", Path: m.Target, Kind: errs.ErrNoSpace,
				Err: errors.New("the disk with the state directory is full"), Hints: []string{"snapfs gc", "snapfs rm SANDBOX"},
			}
		}
	}
	return err
}
