package supervise

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise/cmdbroker"
	"github.com/snapfs/snapfs/engine/supervise/drift"
	"github.com/snapfs/snapfs/engine/supervise/ports"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/relay"
	"github.com/snapfs/snapfs/isolate"
)

// A Supervisor owns the container of a sandbox in this process and serves other processes on a socket in the
// sandbox's directory. `snapfs run` is the supervisor of its own sandbox; other sandboxes get a process of their own
// while commands run in them.
type Supervisor struct {
	Container  *isolate.Container
	socket     string
	socketInfo os.FileInfo // identifies the socket, while served
	drift      *drift.Feed // reports of the real workspace
	daemon     atomic.Bool // processes outlived the last command
	slow       atomic.Bool // the last checkpoint took long
	notes      []string    // differences between the sandbox and its state at creation

	Hidden     []string // masked paths
	Mounts     []isolate.Mount
	prove      func(context.Context) (*catalog.Proof, error)
	onLimitHit func(catalog.LimitHit)                                              // saves it in the record
	starting   func(*isolate.Command) (*events.Start, error)                       // has a command witnessed
	started    func(*events.Start) (ended func(isolate.Status, *catalog.LimitHit)) // announces a command
	// afterExec freezes the container for a snapshot, which finish takes.
	afterExec func(client *fdsock.Conn, args []string, st isolate.Status, hit *catalog.LimitHit) (finish func())
	// checkpoint takes the snapshot mark for a client, whose lock of the sandbox is lock.
	checkpoint func(client *fdsock.Conn, mark string, lock *os.File)
	// cancelReading ends the reading of the workspace early, for a sandbox that is being removed.
	cancelReading func()
	record        func() // records originals of what was changed; nil for an ephemeral sandbox
	Resources     *resources.Resources
	idMappers     *idMappers                      // of its trees, or nil
	Proxy         *egress.Proxy                   // of an allowed network, or nil
	Journal       *egress.Journal                 // of the network; nil while there is neither a proxy nor a client
	forwards      *ports.Forwards                 // of the host's ports; serve sets it, and the functions above
	Refused       []egress.RefusedAccess          // by the proxy; set by Close
	Attempts      *attempts.Log                   // what the programs tried, or nil where that is not observed
	commands      *cmdbroker.Broker               // executes programs that are allowed with certain arguments, or nil
	last          atomic.Pointer[isolate.Command] // the environment and the user of the last command that was started from outside
	deadlines     *deadlines
	Monitor       *serverMonitor
	timers        []func()          // called by Close
	Hit           *catalog.LimitHit // the limit that was hit; set by Close

	// calls counts the requested commands, and running those that have not ended.
	calls, running atomic.Int64

	mu      sync.Mutex
	listen  *fdsock.Conn
	clients map[*fdsock.Conn]bool
	served  sync.WaitGroup
	closed  bool
}

// socket returns the path of the Unix socket on which a sandbox's supervisor serves other snapfs processes.
func (sv *Manager) socket(name string) string { return filepath.Join(sv.cat.Path(name), "keeper") }

// serve opens the Unix socket of the sandbox of rec, and handles the requests of other snapfs processes to its
// supervisor h until h is closed.
func (sv *Manager) serve(h *Supervisor, rec *catalog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.listen != nil {
		return nil
	}
	h.socket, h.clients = sv.socket(rec.Name), map[*fdsock.Conn]bool{}
	h.prove = func(ctx context.Context) (*catalog.Proof, error) { return sv.trySelfTest(ctx, rec, h, sv.copyProbe()) }
	h.starting = func(c *isolate.Command) (*events.Start, error) { return sv.Starting(rec, c) }
	h.started = func(s *events.Start) func(isolate.Status, *catalog.LimitHit) { return sv.Started(rec, h, s) }
	h.afterExec = sv.afterExec(rec, h)
	h.checkpoint = func(client *fdsock.Conn, mark string, lock *os.File) { sv.checkpoint(rec, h, client, mark, lock) }
	h.onLimitHit = func(hit catalog.LimitHit) { sv.recordLimitHit(rec, hit) }
	if h.Journal == nil {
		h.Journal = sv.egress.JournalOf(rec)
	}
	h.forwards = ports.New(rec, h.dialPort, h.Journal.Put)
	l, err := fdsock.Listen(h.socket)
	if err != nil {
		return errs.With("listening", h.socket, err)
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
				client.Close() //nolint:errcheck // another user, or closed
			}
		}
	})
	return nil
}

// admit serves a client that has connected, in the background. It returns false if the client belongs to another user
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
		client.Close() //nolint:errcheck // nothing more to send
	})
	return true
}

// reachable reports whether clients still reach this supervisor by the sandbox's socket: false after another command
// has removed the socket (Manager.Sync) or reused the sandbox's name. The caller holds the sandbox's lock.
func (h *Supervisor) reachable() bool {
	now, err := os.Lstat(h.socket)
	return err == nil && h.socketInfo != nil && os.SameFile(now, h.socketInfo)
}

// alive reports whether the container, the namespaces and processes of the sandbox, still runs.
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

// idleSoon reports whether the last command in the container has ended, or none has begun. It waits up to 50 ms for
// the container's pid 1 to reap the last process.
func (h *Supervisor) idleSoon() bool {
	return h.idleWithin(50*time.Millisecond) || h.calls.Load() == 0
}

// lastReap is how long the last command's status waits for the container's pid 1 to report that no process is left,
// so that the next command finds the sandbox idle. Only a background process costs all of it.
const lastReap = 20 * time.Millisecond

// idleWithin waits for at most d until no process is left in the container, and reports whether none is.
func (h *Supervisor) idleWithin(d time.Duration) bool {
	select {
	case <-h.Container.Idle():
		return true
	case <-time.After(d):
		return false
	}
}

// Close ends the container, waits until all clients have the status of their commands, and removes the socket.
func (h *Supervisor) Close(ctx context.Context) error {
	h.drift.Stop()
	h.deadlines.stop()
	for _, stop := range h.timers {
		stop()
	}
	err := h.Container.Close(ctx)
	h.idMappers.wait()
	if h.Proxy != nil {
		h.Refused = h.Proxy.Close()
	}
	err = errors.Join(err, h.commands.Close())
	h.Hit = h.Resources.LimitHit()
	h.drift.Wait()
	h.mu.Lock()
	h.closed = true
	if h.listen != nil {
		err = errors.Join(err, h.listen.Shutdown())
		if h.reachable() {
			err = errors.Join(err, os.Remove(h.socket))
		}
	}
	for g := range h.clients { // they still receive the status of their command
		g.ShutdownRead() //nolint:errcheck // the client may have gone
	}
	l := h.listen
	h.mu.Unlock()
	if l != nil {
		h.served.Wait()
		err = errors.Join(err, l.Close(), h.forwards.Close())
	}
	// After the clients: one that has frozen the container blocks its pause.
	return errors.Join(err, h.Resources.Close(context.WithoutCancel(ctx)))
}

// A received is a request of a client with the files that came with it, or why it cannot be read.
type received struct {
	Request
	files []*os.File
	err   error
}

// answer receives the requests of a client that has connected, carries them out and sends the replies. Only a client
// that has asked for it by execRequest.Again sends more than one.
func (h *Supervisor) answer(client *fdsock.Conn) {
	msg, files, err := client.Receive()
	if err != nil {
		return
	}
	r := &received{files: files}
	for r.err = decodeRequest(msg, &r.Request); r != nil; {
		next := h.carryOut(client, r)
		if next == nil {
			return
		}
		r = <-next
	}
}

// carryOut carries out a request of a client and sends the reply. It returns nil, or a channel as exec does.
func (h *Supervisor) carryOut(client *fdsock.Conn, r *received) (next <-chan *received) {
	defer fdsock.CloseAll(r.files)
	a, files := &r.Request, r.files
	switch {
	case client.HungUp(): // drop the request of a client that has gone
	case r.err != nil:
		send(client, Reply{Refused: refusalOf(r.err)})
	case a.Exec != nil && a.Exec.Detach:
		h.execDetached(client, *a.Exec)
	case a.Exec != nil:
		return h.exec(client, *a.Exec, files)
	case a.Freeze:
		h.freeze(client)
	case a.Checkpoint != "" && len(files) == 1:
		h.checkpoint(client, a.Checkpoint, files[0])
	case a.Drift:
		h.followDrift(client)
	case a.Limits != nil:
		h.setLimits(client, *a.Limits)
	case a.ResumeSpent:
		h.resumeSpent(client)
	case a.Network != "":
		h.reconnect(client, a.Network)
	case a.Usage:
		h.reportUsage(client)
	case a.Port != nil:
		h.ports(client, *a.Port)
	case a.Stop, a.Leave && h.idleSoon():
		// The goroutine that waits for the container's end does the rest.
		err := h.Container.Close(context.Background())
		send(client, Reply{Ended: err == nil})
	case a.Leave:
		send(client, Reply{})
	}
	return nil
}

// Start runs another command in the sandbox's container. While the container is frozen for a moment, Start waits.
// Errors: errs.ErrDenied if the sandbox is paused for a limit.
func (h *Supervisor) Start(ctx context.Context, c isolate.Command) (*isolate.Process, error) {
	return h.start(ctx, c, func(*isolate.Process) {})
}

// start runs another command in the container, and calls started, to register its client, before a pause can begin.
func (h *Supervisor) start(ctx context.Context, c isolate.Command, started func(*isolate.Process)) (*isolate.Process, error) {
	defer h.deadlines.countActivity()()
	h.Resources.StartLock.RLock()
	defer h.Resources.StartLock.RUnlock()
	if err := h.deadlines.refuseWhenPaused(); err != nil {
		return nil, err
	}
	c.Env = h.Proxy.Variables(hostfs.NameSandbox(c.Env, h.deadlines.rec.Name))
	if c.Guarded == "" {
		h.last.Store(&isolate.Command{Env: c.Env, UID: c.UID})
	}
	p, err := h.Container.Exec(ctx, c)
	if err == nil {
		started(p)
	}
	return p, err
}

// recordEnd stores the originals of changed files before a client learns that its command has ended and someone edits
// the real files. After the last command it also waits, up to lastReap, for the container's pid 1 to reap the
// processes. It does not wait again while a background process has made it wait in vain.
func (h *Supervisor) recordEnd() {
	h.record()
	if h.running.Load() == 1 && (!h.daemon.Load() || h.idle()) {
		h.daemon.Store(!h.idleWithin(lastReap))
	}
}

// exec runs a command for a client and replies with its status. If the client closes the connection first, the
// command gets SIGHUP, as from a closed terminal. Once nothing reads from the connection any more, the returned channel
// has the client's next request, or nil if the connection is closed, as exec does without w.Again. A command that has
// not started gives no channel.
func (h *Supervisor) exec(client *fdsock.Conn, w execRequest, files []*os.File) <-chan *received {
	if h.stoppedSince(w) {
		send(client, Reply{Stopped: true})
		return nil
	}
	if h.calls.Load() > 0 && h.idle() {
		// A new container has just mounted the real tree: this one may show files that have been
		// replaced there since. The client has another one started, see endIdle.
		_ = h.Container.Close(context.Background()) // the goroutine that waits for its end reports it
		send(client, Reply{Gone: true})
		return nil
	}
	h.calls.Add(1)
	h.running.Add(1)
	defer h.running.Add(-1)
	c, outputs, err := w.command(files)
	var proof *catalog.Proof
	var p *isolate.Process
	if err == nil && w.Prove {
		proof, err = h.prove(context.Background())
	}
	deaf := func() *catalog.LimitHit { return nil }
	var start *events.Start
	if err == nil {
		p, start, err = h.startWitnessed(c, func(p *isolate.Process) { deaf = h.deadlines.addListener(client, p, w.EndAtTTL) })
	}
	if err == nil {
		defer h.deadlines.watchStreams(p.PTY(), files...)()
	}
	fdsock.CloseAll(files)
	if err != nil {
		outputs.Close()
		sendRefusal(client, proof, err)
		return nil
	}
	defer p.Close() //nolint:errcheck // descriptors only
	outputs.Start()
	h.served.Go(outputs.Wait)
	var pty []*os.File
	if p.PTY() != nil {
		pty = append(pty, p.PTY())
	}
	if !send(client, Reply{Started: true, Proof: proof}, pty...) {
		p.Signal(syscall.SIGHUP) //nolint:errcheck // it may have ended
	}
	h.deadlines.tell(client)
	announceEnd := h.started(start)
	ended := h.Resources.StartCountdown(p)
	next, gone := make(chan *received, 1), make(chan struct{})
	go func() {
		next <- h.relaySignals(client, p)
		close(gone)
	}()
	st, err := p.Wait(context.Background())
	st = endOutputs(client, outputs, st, gone)
	ended()
	atTTL := deaf()
	h.deadlines.countActivity()()
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		client.Shutdown() //nolint:errcheck // wakes relaySignals
		return next
	}
	if st.ExitCode() != 0 && h.Resources.Group != nil {
		h.Resources.Group.ProcessFailed()
	}
	hit := cmp.Or(atTTL, h.Resources.LimitHit())
	if hit != nil {
		h.onLimitHit(*hit)
	}
	if h.Monitor.Killed() {
		_ = h.Container.Close(context.Background()) // as the monitor does
		send(client, Reply{Note: h.Monitor.Note})
	} else {
		h.recordEnd()
	}
	takeSnapshot := h.afterExec(client, w.Args, st, hit)
	announceEnd(st, hit)
	send(client, Reply{Status: &st, Hit: hit})
	if !w.Again {
		client.Shutdown() //nolint:errcheck // wakes relaySignals
	}
	takeSnapshot()
	return next
}

// command returns the requested command with files as its standard streams, where regular files that are outputs of
// root are replaced by the pipes of a relay. The relay is not nil.
func (w *execRequest) command(files []*os.File) (c isolate.Command, outputs *relay.Relay, err error) {
	c = isolate.Command{Args: w.Args, Env: w.Env, Dir: w.Dir, TTY: w.TTY}
	streams := []**os.File{&c.Stdin, &c.Stdout, &c.Stderr}
	for i, s := range w.Streams {
		if i < len(files) && s >= 0 && s < len(streams) {
			*streams[s] = files[i]
		}
	}
	outputs, err = relay.OpenFiles(c.Stdout, c.Stderr)
	c.Stdout, c.Stderr = outputs.Out, outputs.Err
	return c, outputs, err
}

// endOutputs waits until the output of a command that has ended with the status st is in the client's files. If it
// cannot be written, as on a full disk, endOutputs notifies the client, and the status that it returns is not 0. It
// does not wait for the output once gone is closed, because the client has closed the connection.
func endOutputs(client *fdsock.Conn, outputs *relay.Relay, st isolate.Status, gone <-chan struct{}) isolate.Status {
	outputs.End(gone)
	if lost := outputs.Lost(); lost != nil {
		send(client, Reply{Note: "the end of the command's output is lost: " + lost.Error()})
		if st.ExitCode() == 0 {
			st.Code = 1
		}
	}
	return st
}

// startWitnessed stores the start of a command as evidence, the signed log of the sandbox, if its policy asks
// for that. Then it starts the command and calls started with its process.
func (h *Supervisor) startWitnessed(c isolate.Command, started func(*isolate.Process)) (*isolate.Process, *events.Start, error) {
	start, err := h.starting(&c)
	if err != nil {
		return nil, nil, err
	}
	p, err := h.start(context.Background(), c, started)
	if err != nil {
		start.Refused(err)
	}
	return p, start, err
}

// relaySignals passes the signals that a client sends to the client's command, until the client closes the
// connection; then the command gets SIGHUP. It also ends with a request for another command, and returns that.
func (h *Supervisor) relaySignals(client *fdsock.Conn, p *isolate.Process) (next *received) {
	for {
		msg, files, err := client.Receive()
		if err != nil {
			p.Signal(syscall.SIGHUP) //nolint:errcheck // it may have ended
			return nil
		}
		var a Request
		if decodeRequest(msg, &a) == nil && a.Exec != nil {
			return &received{Request: a, files: files}
		}
		fdsock.CloseAll(files)
		if a.Signal != 0 {
			h.deadlines.countActivity()()
			if a.Group {
				p.SignalGroup(a.Signal) //nolint:errcheck // it may have ended
			} else {
				p.Signal(a.Signal) //nolint:errcheck // it may have ended
			}
		}
	}
}

// freeze freezes the sandbox's processes until the client sends a message or closes the connection.
func (h *Supervisor) freeze(client *fdsock.Conn) {
	thaw, err := h.freezeNow()
	if err != nil {
		send(client, Reply{Refused: refusalOf(err), Gone: errors.Is(err, errs.ErrClosed)})
		return
	}
	send(client, Reply{Frozen: true, Shifted: h.Container.Level().FUSEMapped})
	_, files, _ := client.Receive() // until the client sends a message or closes
	fdsock.CloseAll(files)
	thaw()
	send(client, Reply{})
}

// freezeNow freezes the sandbox's processes until the caller calls thaw, once or several times; no command starts
// meanwhile. After thaw a sandbox that is paused for a limit stays frozen. Errors: errs.ErrClosed if the container has
// ended; those of [isolate.Container.Freeze].
func (h *Supervisor) freezeNow() (thaw func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.Resources.StartLock.Lock()
	paused := h.Resources.Paused() != nil
	if err := h.Container.Freeze(ctx); err != nil {
		h.Resources.StartLock.Unlock()
		return nil, err
	}
	return sync.OnceFunc(func() {
		defer h.Resources.StartLock.Unlock()
		if !paused {
			h.Container.Thaw(context.Background()) //nolint:errcheck // it may have ended
		}
	}), nil
}

// send sends a reply to a client and reports whether that succeeded.
func send(client *fdsock.Conn, t Reply, files ...*os.File) bool {
	msg, err := exactjson.Encode(t)
	return err == nil && client.Send(msg, files...) == nil
}
