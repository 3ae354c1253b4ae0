package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

// A received is a request of a client with the files that came with it. err is set if the request cannot be decoded.
type received struct {
	Request
	files []*os.File
	err   error
}

// answer receives the requests of a client that has connected, carries them out and sends the replies. A client sends
// more than one only after an execRequest with Again.
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

// carryOut carries out a client's request and sends the reply. It returns the channel of exec for a command, else nil.
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
