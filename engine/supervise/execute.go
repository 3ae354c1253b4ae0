package supervise

import (
	"cmp"
	"context"
	"os"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/relay"
	"github.com/snapfs/snapfs/isolate"
)

// recordEnd stores the originals of changed files before a client learns that its command has ended and someone edits
// the real files. After the last command it also waits, up to lastReap, for the container's pid 1 to reap the
// processes. It does not wait again while a background process has made it wait in vain.
func (h *Supervisor) recordEnd() {
	h.record()
	if h.running.Load() == 1 && (!h.daemon.Load() || h.idle()) {
		h.daemon.Store(!h.idleWithin(lastReap))
	}
}

// exec runs a command for a client and replies with its status. If the client closes the connection first, the command
// gets SIGHUP, as from a closed terminal. The returned channel delivers the client's next request, or nil once the
// connection is closed; without w.Again exec shuts it down. exec returns nil if the command has not started.
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
	next := make(chan *received, 1)
	go func() { next <- h.relaySignals(client, p) }()
	st, err := p.Wait(context.Background())
	st = endOutputs(client, outputs, st)
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

// stuckOutput is how long a write of a command's output to a file may take whose client has gone.
const stuckOutput = 30 * time.Second

// endOutputs waits until the output of a command that has ended with the status st is in the client's files, because
// the client must not get the status before. The end of the client's requests does not end the wait: [Supervisor.Close]
// also causes that, for an idle container whose clients still wait. If the output cannot be written, as on a full disk,
// or a write has not returned when the client closes the connection, endOutputs notifies the client, and the status
// that it returns is not 0.
func endOutputs(client *fdsock.Conn, outputs *relay.Relay, st isolate.Status) isolate.Status {
	outputs.EndUnlessStuck(stuckOutput, client.HungUp)
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
