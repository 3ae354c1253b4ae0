package engine

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
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
)

// A host is a keeper: the part of a process that holds a sandbox's namespaces
// and lets other commands in by a socket in the sandbox's directory. `snapfs
// run` is the host of its own sandbox; other sandboxes get a process for it
// while something runs in them.
type host struct {
	box    *isolate.Container
	socket string
	place  os.FileInfo // the socket's, while it is served
	drift  *bulletin   // what it tells of the real workspace
	notes  []string    // what of the sandbox is not as it was when it was made

	hidden  []string // what is masked
	mounts  []isolate.Mount
	prove   func(context.Context) (*catalog.Proof, error)
	struck  func(catalog.Hit) // keeps it in the record
	allowed *allowance
	shifts  *shifts         // what shows its trees, or nil
	outlet  *outlet         // of an allowed network, or nil
	inlets  *inlets         // ports that lead into it
	refused []RefusedAccess // by it, once it is closed
	warden  *warden
	losable *losable
	timers  []func()     // to be called at the end
	hit     *catalog.Hit // the limit that was hit, once it is closed

	// calls counts the commands that were asked for.
	calls atomic.Int64

	mu     sync.Mutex
	listen *fdsock.Conn
	guests map[*fdsock.Conn]bool
	served sync.WaitGroup
	closed bool
}

// beginBox starts the limits of a policy and a box that they hold. place is the box's
// from here on, also after an error; nil: one that is given without waiting.
func (e *Engine) beginBox(ctx context.Context, workspace string, p catalog.Policy, command *isolate.Command, place *admission.Slot) (*isolate.Prepared, *allowance, error) {
	allowed, err := e.startAllowance(ctx, workspace, p, command == nil || p.Limits.Idle > 0, place)
	if err != nil {
		return nil, nil, err
	}
	if p.Prove { // that comes first
		command = nil
	}
	spec := confinement(p)
	allowed.bind(&spec)
	begun, err := isolate.Prepare(ctx, spec, command)
	if err != nil {
		return nil, nil, errors.Join(allowed.blame(ctx, err), allowed.close(context.WithoutCancel(ctx)))
	}
	return begun, allowed, nil
}

// startBox starts a box, and command in it where it is not nil. begun is a box begun
// for them with what it is allowed, or one is nil, or both; real is where the secrets of the
// real trees are. Mounts of the real machine come and go while it is looked at, so
// what fails is tried again where they have changed meanwhile.
func (e *Engine) startBox(ctx context.Context, rec *catalog.Record, begun *isolate.Prepared, allowed *allowance, real func() search, command *isolate.Command) (h *host, p *isolate.Process, err error) {
	var room bool // beyond the limit of the disk
	defer func() {
		if err != nil && allowed != nil {
			err = errors.Join(allowed.blame(ctx, err), allowed.close(context.WithoutCancel(ctx)))
		}
		if err != nil && room {
			err = errors.Join(err, e.limitForks(context.WithoutCancel(ctx), rec, rec.Policy.Limits))
		}
	}()
	var tries attempts
	defer tries.close()
	for {
		spec, notes, err := e.spec(ctx, rec, real)
		if err == nil {
			err = fault.Point(ctx, "start its processes")
		} else if tries.again(err) {
			continue
		}
		if err == nil && allowed == nil {
			allowed, err = e.startAllowance(ctx, rec.Workspace, rec.Policy, command == nil || rec.Policy.Limits.Idle > 0, nil)
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
		var shown *shifts
		shown, spec.Shift = e.shifter()
		box, proc, err := begun.Start(ctx, spec)
		begun = nil
		if err != nil {
			shown.wait()
		}
		if err == nil && room {
			if err := e.limitForks(ctx, rec, rec.Policy.Limits); err != nil {
				return nil, nil, errors.Join(err, box.Close(context.WithoutCancel(ctx)))
			}
			room = false
		}
		if err == nil {
			notes = slices.Concat(notes, allowed.moot(), shownNote(box.Level()))
			return e.hosted(ctx, rec, &host{box: box, shifts: shown, allowed: allowed, notes: notes, mounts: spec.Mounts}, proc, command, spec.Hide)
		}
		var refused *errs.Error
		switch mounting := errors.As(err, &refused); {
		case mounting && !room && limitsDisk(rec.Policy.Limits):
			room = true
			if err := e.makeRoom(ctx, rec); err != nil {
				return nil, nil, err
			}
		case !mounting || allowed.killed() || !tries.again(err):
			return nil, nil, outOfSpace(spec, err)
		}
		if err := e.settleTrees(ctx, rec); err != nil { // what was mounted before it failed
			return nil, nil, err
		}
	}
}

// hosted makes a host of a box that has just started.
func (e *Engine) hosted(ctx context.Context, rec *catalog.Record, h *host, p *isolate.Process, command *isolate.Command, hide []string) (*host, *isolate.Process, error) {
	h.socket, h.guests, h.hidden = e.socket(rec.Name), map[*fdsock.Conn]bool{}, hide
	h.prove = func(ctx context.Context) (*catalog.Proof, error) { return e.selfTest(ctx, rec, h, e.copyProbe()) }
	h.struck = func(hit catalog.Hit) { e.noteHit(rec, hit) }
	if err := h.allowed.attach(h.box); err != nil && h.alive() { // it may have ended by now
		return nil, nil, errors.Join(err, h.box.Close(context.WithoutCancel(ctx)))
	}
	var err error
	log := e.journalOf(rec)
	h.inlets = newInlets(rec, h, log)
	if h.outlet, err = e.openOutlet(rec, h.box, log); err != nil {
		return nil, nil, errors.Join(err, h.box.Close(context.WithoutCancel(ctx)))
	}
	h.allowed.disk = e.gaugeOf(rec)
	h.timers = append(h.timers, e.tend(rec))
	h.warden = e.watchOver(h, rec)
	h.losable = e.losableOf(rec)
	h.timers = append(h.timers, h.losable.watch(func() { _ = h.box.Close(context.Background()) })) // whoever waits for its end does the rest
	if p != nil {
		h.timers = append(h.timers, h.allowed.within(p), h.warden.attend(p.PTY(), command.Stdin, command.Stdout, command.Stderr))
	}
	e.announce(h, rec, hide)
	return h, p, nil
}

// tellNotes says what of a sandbox that was started is not as it was.
func (e *Engine) tellNotes(h *host) {
	for _, note := range h.notes {
		e.notice(note)
	}
}

// outOfSpace tells why overlays could not be written to, where that is because
// their disk is full: the kernel does not say so.
func outOfSpace(spec isolate.Spec, err error) error {
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

func (e *Engine) socket(name string) string { return filepath.Join(e.cat.Path(name), "keeper") }

// serve opens the socket and lets other commands in until close.
func (h *host) serve() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.listen != nil {
		return nil
	}
	l, err := fdsock.Listen(h.socket)
	if err != nil {
		return &errs.Error{Op: "listening", Path: h.socket, Kind: errs.KindOf(err), Err: err}
	}
	if h.place, err = os.Lstat(h.socket); err != nil {
		return errors.Join(err, l.Close())
	}
	h.listen = l
	h.served.Go(func() {
		for {
			guest, err := l.Accept()
			if err != nil {
				return
			}
			if !h.admit(guest) {
				guest.Close() //nolint:errcheck // a stranger, or too late
			}
		}
	})
	return nil
}

// admit serves a connection of this user, or of root.
func (h *host) admit(guest *fdsock.Conn) bool {
	uid, err := guest.PeerUID()
	if err != nil || uid != 0 && int(uid) != os.Geteuid() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.guests[guest] = true
	h.served.Go(func() {
		h.answer(guest)
		h.mu.Lock()
		delete(h.guests, guest)
		h.mu.Unlock()
		guest.Close() //nolint:errcheck // all was said
	})
	return true
}

// reachable: nobody has settled the sandbox for this keeper, or given its name
// to another. To be asked under the sandbox's lock.
func (h *host) reachable() bool {
	now, err := os.Lstat(h.socket)
	return err == nil && h.place != nil && os.SameFile(now, h.place)
}

// alive: the box is there.
func (h *host) alive() bool {
	select {
	case <-h.box.Done():
		return false
	default:
		return true
	}
}

// idle: something has run in the box, and nothing does now.
func (h *host) idle() bool {
	select {
	case <-h.box.Idle():
		return true
	default:
		return false
	}
}

// idleSoon is idle, or within the time that pid 1 needs to see that the last
// process is gone.
func (h *host) idleSoon() bool {
	select {
	case <-h.box.Idle():
		return true
	case <-time.After(50 * time.Millisecond):
		return h.calls.Load() == 0
	}
}

// close ends everything inside, lets the guests know, and removes the socket.
func (h *host) close(ctx context.Context) error {
	h.drift.stop()
	h.warden.stop()
	for _, stop := range h.timers {
		stop()
	}
	err := h.box.Close(ctx)
	h.shifts.wait()
	h.refused = h.outlet.close()
	h.hit = h.allowed.struck()
	h.drift.wait()
	h.mu.Lock()
	h.closed = true
	if h.listen != nil {
		err = errors.Join(err, h.listen.Shutdown())
		if h.reachable() {
			err = errors.Join(err, os.Remove(h.socket))
		}
	}
	for g := range h.guests { // they still hear how their command ended
		g.ShutdownRead() //nolint:errcheck // it may have gone by itself
	}
	l := h.listen
	h.mu.Unlock()
	if l != nil {
		h.served.Wait()
		err = errors.Join(err, l.Close())
	}
	err = errors.Join(err, h.inlets.close())
	// After the guests: one that has frozen the box holds up what would pause it.
	return errors.Join(err, h.allowed.close(context.WithoutCancel(ctx)))
}

// answer serves one guest, which asks for one thing.
func (h *host) answer(guest *fdsock.Conn) {
	msg, files, err := guest.Receive()
	defer closeAll(files)
	if err != nil || guest.HungUp() { // what nobody waits for any more is not wanted
		return
	}
	var a ask
	if err := json.Unmarshal(msg, &a); err != nil {
		say(guest, tell{Refused: refusalOf(err)})
		return
	}
	switch {
	case a.Exec != nil:
		h.exec(guest, *a.Exec, files)
	case a.Freeze:
		h.freeze(guest)
	case a.Drift:
		h.follow(guest)
	case a.Limits != nil:
		h.limit(guest, *a.Limits)
	case a.Network != "":
		h.reconnect(guest, a.Network)
	case a.Usage:
		h.count(guest)
	case a.Port != nil:
		h.ports(guest, *a.Port)
	case a.Stop, a.Leave && h.idleSoon():
		// Whoever waits for the box's end does the rest.
		err := h.box.Close(context.Background())
		say(guest, tell{Ended: err == nil})
	case a.Leave:
		say(guest, tell{})
	}
}

// start runs one more command in the box, when that does not stand still for a
// moment. One that stands still for good gets none: errs.ErrDenied.
func (h *host) start(ctx context.Context, c isolate.Command) (*isolate.Process, error) {
	defer h.warden.stir()()
	h.allowed.still.RLock()
	defer h.allowed.still.RUnlock()
	if err := h.warden.refuse(); err != nil {
		return nil, err
	}
	return h.box.Exec(ctx, c)
}

// exec runs a command for a guest and tells it how it ended. When the guest
// goes first, the command gets a hangup, as on a terminal that is closed.
func (h *host) exec(guest *fdsock.Conn, w wireCommand, files []*os.File) {
	if h.outdated(w) {
		say(guest, tell{Stopped: true})
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
		p, err = h.start(context.Background(), c)
	}
	if err == nil {
		defer h.warden.attend(p.PTY(), files...)()
	}
	closeAll(files)
	if err != nil {
		t := tell{Proof: proof, Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)}
		var ce *isolate.CommandError
		if errors.As(err, &ce) {
			t.Errno = ce.Errno
		}
		say(guest, t)
		return
	}
	defer p.Close() //nolint:errcheck // descriptors only
	var pty []*os.File
	if p.PTY() != nil {
		pty = append(pty, p.PTY())
	}
	if !say(guest, tell{Started: true, Proof: proof}, pty...) {
		p.Signal(syscall.SIGHUP) //nolint:errcheck // it may have ended
	}
	ended := h.allowed.within(p)
	deaf := h.warden.listener(guest)
	go h.relaySignals(guest, p)
	st, err := p.Wait(context.Background())
	ended()
	deaf()
	h.warden.stir()()
	if err != nil {
		say(guest, tell{Refused: refusalOf(err)})
		return
	}
	if st.ExitCode() != 0 {
		h.allowed.group.ProcessFailed()
	}
	hit := h.allowed.struck()
	if hit != nil {
		h.struck(*hit)
	}
	if h.losable.lost() {
		_ = h.box.Close(context.Background()) // as who watches does
		say(guest, tell{Note: h.losable.note})
	}
	say(guest, tell{Status: &st, Hit: hit})
	guest.Shutdown() //nolint:errcheck // wakes relaySignals
}

func (h *host) relaySignals(guest *fdsock.Conn, p *isolate.Process) {
	for {
		msg, files, err := guest.Receive()
		closeAll(files)
		if err != nil {
			p.Signal(syscall.SIGHUP) //nolint:errcheck // nobody is left to tell; it may have ended
			return
		}
		var a ask
		if json.Unmarshal(msg, &a) == nil && a.Signal != 0 {
			h.warden.stir()()
			p.Signal(a.Signal) //nolint:errcheck // it may have ended
		}
	}
}

// freeze stops the sandbox's processes until the guest goes.
func (h *host) freeze(guest *fdsock.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.allowed.still.Lock()
	defer h.allowed.still.Unlock()
	paused := h.allowed.paused.Load() != nil
	if err := h.box.Freeze(ctx); err != nil {
		say(guest, tell{Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)})
		return
	}
	say(guest, tell{Frozen: true, Shifted: h.box.Level().Shifted})
	_, files, _ := guest.Receive() // until it says that it is done, or goes
	closeAll(files)
	if !paused {
		h.box.Thaw(context.Background()) //nolint:errcheck // a box that has ended needs no thawing
	}
	say(guest, tell{})
}

// say tells a guest something, and reports whether it arrived.
func say(guest *fdsock.Conn, t tell, files ...*os.File) bool {
	msg, err := json.Marshal(t)
	return err == nil && guest.Send(msg, files...) == nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
