package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/isolate"
)

// A Supervisor owns the container of a sandbox in this process and serves other processes on a
// socket in the sandbox's directory. `snapfs run` is the supervisor of its own sandbox; other
// sandboxes get a process of their own while commands run in them.
type Supervisor struct {
	Container  *isolate.Container
	socket     string
	socketInfo os.FileInfo // the socket's, while it is served
	drift      *driftFeed  // what it tells of the real workspace
	notes      []string    // what of the sandbox is not as it was when it was made

	Hidden     []string // what is masked
	Mounts     []isolate.Mount
	prove      func(context.Context) (*catalog.Proof, error)
	onLimitHit func(catalog.LimitHit) // keeps it in the record
	Resources  *resources
	idMappers  *idMappers             // what shows its trees, or nil
	Proxy      *egress.Proxy          // of an allowed network, or nil
	forwards   *portForwards          // ports that lead into it
	Refused    []egress.RefusedAccess // by it, once it is closed
	deadlines  *deadlines
	Monitor    *serverMonitor
	timers     []func()          // to be called at the end
	Hit        *catalog.LimitHit // the limit that was hit, once it is closed

	// calls counts the requested commands.
	calls atomic.Int64

	mu      sync.Mutex
	listen  *fdsock.Conn
	clients map[*fdsock.Conn]bool
	served  sync.WaitGroup
	closed  bool
}

// Prepare starts the limits of a policy and prepares a container under them, before the
// sandbox's trees are known. It takes over the slot, also after an error; if slot is nil, the
// sandbox is admitted at once.
func (sv *Manager) Prepare(ctx context.Context, workspace string, p catalog.Policy, command *isolate.Command, place *admission.Slot) (*isolate.Prepared, *resources, error) {
	allowed, err := sv.startResources(ctx, workspace, p, command == nil || p.Limits.Idle > 0, place)
	if err != nil {
		return nil, nil, err
	}
	if p.Prove { // that comes first
		command = nil
	}
	spec := hostfs.Confinement(p)
	allowed.bind(&spec)
	begun, err := isolate.Prepare(ctx, spec, command)
	if err != nil {
		return nil, nil, errors.Join(allowed.startError(ctx, err), allowed.Close(context.WithoutCancel(ctx)))
	}
	return begun, allowed, nil
}

// startContainer starts a box, and command in it where it is not nil. begun is a box begun
// for them with what it is allowed, or one is nil, or both; real is where the secrets of the
// real trees are. Mounts of the real machine come and go while it is looked at, so
// what fails is tried again where they have changed meanwhile.
func (sv *Manager) startContainer(ctx context.Context, rec *catalog.Record, begun *isolate.Prepared, allowed *resources, real func() hostfs.SecretPaths, command *isolate.Command) (h *Supervisor, p *isolate.Process, err error) {
	var room bool // beyond the limit of the disk
	defer func() {
		if err != nil && allowed != nil {
			err = errors.Join(allowed.startError(ctx, err), allowed.Close(context.WithoutCancel(ctx)))
		}
		if err != nil && room {
			err = errors.Join(err, sv.sandboxes.LimitForks(context.WithoutCancel(ctx), rec, rec.Policy.Limits))
		}
	}()
	var tries hostfs.MountRetry
	defer tries.Close()
	for {
		spec, notes, err := sv.host.Spec(ctx, rec, real)
		if err == nil {
			err = fault.Point(ctx, "start its processes")
		} else if tries.Again(err) {
			continue
		}
		if err == nil && allowed == nil {
			allowed, err = sv.startResources(ctx, rec.Workspace, rec.Policy, command == nil || rec.Policy.Limits.Idle > 0, nil)
		}
		if err == nil {
			allowed.bind(&spec)
		}
		if err == nil && begun == nil {
			begun, err = isolate.Prepare(ctx, spec, command)
		}
		if err != nil {
			return nil, nil, errors.Join(err, begun.Close())
		}
		var shown *idMappers
		shown, spec.MapIDs = sv.newIDMappers()
		box, proc, err := begun.Start(ctx, spec)
		begun = nil
		if err != nil {
			shown.wait()
		}
		if err == nil && room {
			if err := sv.sandboxes.LimitForks(ctx, rec, rec.Policy.Limits); err != nil {
				return nil, nil, errors.Join(err, box.Close(context.WithoutCancel(ctx)))
			}
			room = false
		}
		if err == nil {
			notes = slices.Concat(notes, allowed.unenforced(), idMappingNote(box.Level()))
			return sv.newSupervisor(ctx, rec, &Supervisor{Container: box, idMappers: shown, Resources: allowed, notes: notes, Mounts: spec.Mounts}, proc, command, spec.Hide)
		}
		var refused *errs.Error
		switch mounting := errors.As(err, &refused); {
		case mounting && !room && hostfs.LimitsDisk(rec.Policy.Limits):
			room = true
			if err := sv.sandboxes.RaiseDiskLimit(ctx, rec); err != nil {
				return nil, nil, err
			}
		case !mounting || allowed.killed() || !tries.Again(err):
			return nil, nil, explainFullDisk(spec, err)
		}
		if err := sv.sandboxes.SyncTrees(ctx, rec); err != nil { // what was mounted before it failed
			return nil, nil, err
		}
	}
}

// newSupervisor completes the Supervisor of a container that has just started: limits, network
// proxy, maintenance, deadlines and drift feed. After an error the container is closed.
func (sv *Manager) newSupervisor(ctx context.Context, rec *catalog.Record, h *Supervisor, p *isolate.Process, command *isolate.Command, hide []string) (*Supervisor, *isolate.Process, error) {
	h.socket, h.clients, h.Hidden = sv.socket(rec.Name), map[*fdsock.Conn]bool{}, hide
	h.prove = func(ctx context.Context) (*catalog.Proof, error) { return sv.trySelfTest(ctx, rec, h, sv.copyProbe()) }
	h.onLimitHit = func(hit catalog.LimitHit) { sv.recordLimitHit(rec, hit) }
	if err := h.Resources.attach(h.Container); err != nil && h.alive() { // it may have ended by now
		return nil, nil, errors.Join(err, h.Container.Close(context.WithoutCancel(ctx)))
	}
	var err error
	log := sv.egress.JournalOf(rec)
	h.forwards = newPortForwards(rec, h, log)
	if h.Proxy, err = sv.egress.OpenProxy(rec, h.Container, log); err != nil {
		return nil, nil, errors.Join(err, h.Container.Close(context.WithoutCancel(ctx)))
	}
	h.Resources.disk = sv.sandboxes.GaugeOf(rec)
	h.timers = append(h.timers, sv.sandboxes.StartMaintenance(rec))
	h.deadlines = sv.startDeadlines(h, rec)
	h.Monitor = sv.serverMonitorOf(rec)
	h.timers = append(h.timers, h.Monitor.watch(func() { _ = h.Container.Close(context.Background()) })) // whoever waits for its end does the rest
	if p != nil {
		h.timers = append(h.timers, h.Resources.startCountdown(p), h.deadlines.watchStreams(p.PTY(), command.Stdin, command.Stdout, command.Stderr))
	}
	sv.startDriftFeed(h, rec, hide)
	return h, p, nil
}

// ReportNotes reports a notice for each difference between a started sandbox and its state at
// creation.
func (sv *Manager) ReportNotes(h *Supervisor) {
	for _, note := range h.notes {
		sv.notice(note)
	}
}

// explainFullDisk replaces the error of a failed mount if the disk of an overlay's upper is
// full: the kernel does not return ENOSPC then.
func explainFullDisk(spec isolate.Spec, err error) error {
	for _, m := range spec.Mounts {
		var fs syscall.Statfs_t
		if m.Overlay == nil || m.Overlay.Upper == "" || syscall.Statfs(m.Overlay.Upper, &fs) != nil {
			continue
		}
		if fs.Bavail < 16 || fs.Files > 0 && fs.Ffree == 0 { // ext4 keeps some free blocks even from root
			return &errs.Error{
				Op: "mounting", Path: m.Target, Kind: errs.ErrNoSpace,
				Err: errors.New("the disk with the state directory is full"), Hints: []string{"snapfs gc", "snapfs rm SANDBOX"},
			}
		}
	}
	return err
}

// socket returns the path of a supervisor's socket.
func (sv *Manager) socket(name string) string { return filepath.Join(sv.cat.Path(name), "keeper") }

// serve opens the socket and accepts clients until Close.
func (h *Supervisor) serve() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.listen != nil {
		return nil
	}
	l, err := fdsock.Listen(h.socket)
	if err != nil {
		return &errs.Error{Op: "listening", Path: h.socket, Kind: errs.KindOf(err), Err: err}
	}
	if h.socketInfo, err = os.Lstat(h.socket); err != nil {
		return errors.Join(err, l.Close())
	}
	h.listen = l
	h.served.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if !h.admit(client) {
				client.Close() //nolint:errcheck // a stranger, or too late
			}
		}
	})
	return nil
}

// admit serves a client in the background. It reports false if the client is of another user
// than this one or root, or if the supervisor is closed.
func (h *Supervisor) admit(client *fdsock.Conn) bool {
	uid, err := client.PeerUID()
	if err != nil || uid != 0 && int(uid) != os.Geteuid() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.clients[client] = true
	h.served.Go(func() {
		h.answer(client)
		h.mu.Lock()
		delete(h.clients, client)
		h.mu.Unlock()
		client.Close() //nolint:errcheck // all was said
	})
	return true
}

// reachable reports whether the socket is still this supervisor's: false after another command
// has run Sync for the sandbox or has reused its name. The caller holds the sandbox's lock.
func (h *Supervisor) reachable() bool {
	now, err := os.Lstat(h.socket)
	return err == nil && h.socketInfo != nil && os.SameFile(now, h.socketInfo)
}

// alive reports whether the container has not ended.
func (h *Supervisor) alive() bool {
	select {
	case <-h.Container.Done():
		return false
	default:
		return true
	}
}

// idle reports whether the last command in the container has ended.
func (h *Supervisor) idle() bool {
	select {
	case <-h.Container.Idle():
		return true
	default:
		return false
	}
}

// idleSoon is idle, but waits up to 50 ms for pid 1 to reap the last process.
func (h *Supervisor) idleSoon() bool {
	select {
	case <-h.Container.Idle():
		return true
	case <-time.After(50 * time.Millisecond):
		return h.calls.Load() == 0
	}
}

// Close ends the container, waits until the clients have received the status of their
// commands, and removes the socket.
func (h *Supervisor) Close(ctx context.Context) error {
	h.drift.stop()
	h.deadlines.stop()
	for _, stop := range h.timers {
		stop()
	}
	err := h.Container.Close(ctx)
	h.idMappers.wait()
	h.Refused = h.Proxy.Close()
	h.Hit = h.Resources.limitHit()
	h.drift.wait()
	h.mu.Lock()
	h.closed = true
	if h.listen != nil {
		err = errors.Join(err, h.listen.Shutdown())
		if h.reachable() {
			err = errors.Join(err, os.Remove(h.socket))
		}
	}
	for g := range h.clients { // they still hear how their command ended
		g.ShutdownRead() //nolint:errcheck // it may have gone by itself
	}
	l := h.listen
	h.mu.Unlock()
	if l != nil {
		h.served.Wait()
		err = errors.Join(err, l.Close())
	}
	err = errors.Join(err, h.forwards.close())
	// After the clients: one that has frozen the box holds up what would pause it.
	return errors.Join(err, h.Resources.Close(context.WithoutCancel(ctx)))
}

// answer handles the one request of a client.
func (h *Supervisor) answer(client *fdsock.Conn) {
	msg, files, err := client.Receive()
	defer fdsock.CloseAll(files)
	if err != nil || client.HungUp() { // what nobody waits for any more is not wanted
		return
	}
	var a Request
	if err := json.Unmarshal(msg, &a); err != nil {
		send(client, reply{Refused: refusalOf(err)})
		return
	}
	switch {
	case a.Exec != nil:
		h.exec(client, *a.Exec, files)
	case a.Freeze:
		h.freeze(client)
	case a.Drift:
		h.followDrift(client)
	case a.Limits != nil:
		h.setLimits(client, *a.Limits)
	case a.Network != "":
		h.reconnect(client, a.Network)
	case a.Usage:
		h.reportUsage(client)
	case a.Port != nil:
		h.ports(client, *a.Port)
	case a.Stop, a.Leave && h.idleSoon():
		// Whoever waits for the box's end does the rest.
		err := h.Container.Close(context.Background())
		send(client, reply{Ended: err == nil})
	case a.Leave:
		send(client, reply{})
	}
}

// Start runs one more command in the container. It waits while the container is frozen for a
// moment. Errors: errs.ErrDenied if the container is paused.
func (h *Supervisor) Start(ctx context.Context, c isolate.Command) (*isolate.Process, error) {
	defer h.deadlines.countActivity()()
	h.Resources.startLock.RLock()
	defer h.Resources.startLock.RUnlock()
	if err := h.deadlines.refuseWhenPaused(); err != nil {
		return nil, err
	}
	return h.Container.Exec(ctx, c)
}

// exec runs a command for a client and replies with its status. If the client closes the
// connection first, the command gets SIGHUP, as from a closed terminal.
func (h *Supervisor) exec(client *fdsock.Conn, w execRequest, files []*os.File) {
	if h.stoppedSince(w) {
		send(client, reply{Stopped: true})
		return
	}
	h.calls.Add(1)
	c := isolate.Command{Args: w.Args, Env: w.Env, Dir: w.Dir, TTY: w.TTY}
	streams := []**os.File{&c.Stdin, &c.Stdout, &c.Stderr}
	for i, s := range w.Streams {
		if i < len(files) && s >= 0 && s < len(streams) {
			*streams[s] = files[i]
		}
	}
	var proof *catalog.Proof
	var p *isolate.Process
	var err error
	if w.Prove {
		proof, err = h.prove(context.Background())
	}
	if err == nil {
		p, err = h.Start(context.Background(), c)
	}
	if err == nil {
		defer h.deadlines.watchStreams(p.PTY(), files...)()
	}
	fdsock.CloseAll(files)
	if err != nil {
		t := reply{Proof: proof, Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)}
		var ce *isolate.CommandError
		if errors.As(err, &ce) {
			t.Errno = ce.Errno
		}
		send(client, t)
		return
	}
	defer p.Close() //nolint:errcheck // descriptors only
	var pty []*os.File
	if p.PTY() != nil {
		pty = append(pty, p.PTY())
	}
	if !send(client, reply{Started: true, Proof: proof}, pty...) {
		p.Signal(syscall.SIGHUP) //nolint:errcheck // it may have ended
	}
	ended := h.Resources.startCountdown(p)
	deaf := h.deadlines.addListener(client)
	go h.relaySignals(client, p)
	st, err := p.Wait(context.Background())
	ended()
	deaf()
	h.deadlines.countActivity()()
	if err != nil {
		send(client, reply{Refused: refusalOf(err)})
		return
	}
	if st.ExitCode() != 0 {
		h.Resources.Group.ProcessFailed()
	}
	hit := h.Resources.limitHit()
	if hit != nil {
		h.onLimitHit(*hit)
	}
	if h.Monitor.Killed() {
		_ = h.Container.Close(context.Background()) // as who watches does
		send(client, reply{Note: h.Monitor.Note})
	}
	send(client, reply{Status: &st, Hit: hit})
	client.Shutdown() //nolint:errcheck // wakes relaySignals
}

// relaySignals sends a client's signals to its command until the client closes the connection.
func (h *Supervisor) relaySignals(client *fdsock.Conn, p *isolate.Process) {
	for {
		msg, files, err := client.Receive()
		fdsock.CloseAll(files)
		if err != nil {
			p.Signal(syscall.SIGHUP) //nolint:errcheck // nobody is left to tell; it may have ended
			return
		}
		var a Request
		if json.Unmarshal(msg, &a) == nil && a.Signal != 0 {
			h.deadlines.countActivity()()
			p.Signal(a.Signal) //nolint:errcheck // it may have ended
		}
	}
}

// freeze freezes the container until the client sends a message or closes the connection.
func (h *Supervisor) freeze(client *fdsock.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.Resources.startLock.Lock()
	defer h.Resources.startLock.Unlock()
	paused := h.Resources.paused.Load() != nil
	if err := h.Container.Freeze(ctx); err != nil {
		send(client, reply{Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)})
		return
	}
	send(client, reply{Frozen: true, Shifted: h.Container.Level().FUSEMapped})
	_, files, _ := client.Receive() // until it says that it is done, or goes
	fdsock.CloseAll(files)
	if !paused {
		h.Container.Thaw(context.Background()) //nolint:errcheck // a box that has ended needs no thawing
	}
	send(client, reply{})
}

// send sends a reply to a client and reports whether that succeeded.
func send(client *fdsock.Conn, t reply, files ...*os.File) bool {
	msg, err := json.Marshal(t)
	return err == nil && client.Send(msg, files...) == nil
}

// Start starts a sandbox's container, then the self-test if the policy requires one, then
// command if it is not nil. The other parameters are those of startContainer. Errors: also
// ErrWall; rec then has the proof.
func (sv *Manager) Start(ctx context.Context, rec *catalog.Record, begun *isolate.Prepared, allowed *resources, real func() hostfs.SecretPaths, command *isolate.Command) (*Supervisor, *isolate.Process, error) {
	if !rec.Policy.Prove {
		return sv.startContainer(ctx, rec, begun, allowed, real, command)
	}
	program := sv.copyProbe() // beside the start
	h, _, err := sv.startContainer(ctx, rec, begun, allowed, real, nil)
	if err != nil {
		if unused, _ := program(); unused != nil {
			unused.Close()
		}
		return nil, nil, err
	}
	var p *isolate.Process
	if rec.Proof, err = sv.trySelfTest(ctx, rec, h, program); err == nil && command != nil {
		if p, err = h.Start(ctx, *command); err == nil {
			h.timers = append(h.timers, h.Resources.startCountdown(p), h.deadlines.watchStreams(p.PTY(), command.Stdin, command.Stdout, command.Stderr))
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return h, p, nil
}

// copyProbe begins to copy the probe program into memory. The returned function waits for the
// copy.
func (sv *Manager) copyProbe() func() (*os.File, error) {
	type answer struct {
		program *os.File
		err     error
	}
	copied := make(chan answer, 1)
	go func() {
		if len(sv.probe) == 0 {
			copied <- answer{err: errors.New("this program was opened without probes")}
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
