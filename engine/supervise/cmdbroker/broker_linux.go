package cmdbroker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/isolate/stub"
)

// maxCalls is how many calls a Broker serves at once. Further ones wait.
const maxCalls = 128

// firstMessage is how long a connection may take to send the stub's message.
const firstMessage = 10 * time.Second

// exhausted are the errors of accepting a connection that end by themselves, and untilFree is how long to wait then.
var exhausted = [...]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

const untilFree = 10 * time.Millisecond

// notExecuted is the exit status of a stub whose program was not executed, as shells have it.
const notExecuted = 126

// A Broker executes guarded programs for the processes of one sandbox. [Start] makes it.
type Broker struct {
	o      Options
	listen *fdsock.Conn
	own    restrictions // of the container's processes, if they have not restricted themselves further
	served sync.WaitGroup
	slots  chan struct{}
	ended  chan struct{} // closed by Close

	mu    sync.Mutex
	conns map[*fdsock.Conn]bool // those that are served; nil once Close has ended them
}

// Start opens the socket for the stubs in the container and serves them until Close. It returns nil without rules.
func Start(o Options) (*Broker, error) {
	if len(o.Rules) == 0 {
		return nil, nil //nolint:nilnil // nothing is guarded
	}
	own, err := restrictionsOf(o.Container.PID())
	if err != nil {
		return nil, errs.With("guarding programs", "", err)
	}
	listen, err := o.Container.ListenForGuarded()
	if err != nil {
		return nil, err
	}
	b := newBroker(o, listen, own)
	b.served.Go(b.accept)
	return b, nil
}

// newBroker returns a Broker that serves nothing yet.
func newBroker(o Options, listen *fdsock.Conn, own restrictions) *Broker {
	return &Broker{
		o: o, listen: listen, own: own, slots: make(chan struct{}, maxCalls), ended: make(chan struct{}), conns: map[*fdsock.Conn]bool{},
	}
}

// lastCalls is how long Close waits for the calls.
const lastCalls = 5 * time.Second

// Close ends the Broker after its container has ended: it ends each connection, also one whose other end is open, and
// waits a moment for the calls. It waits no longer, because a call may close a descriptor that it got from the container,
// and for as long as a process there chose (SO_LINGER of socket(7)). It does nothing if b is nil.
func (b *Broker) Close() error {
	if b == nil {
		return nil
	}
	err := b.listen.Shutdown()
	close(b.ended)
	b.mu.Lock()
	for conn := range b.conns {
		_ = conn.Shutdown() // the other end may be closed
	}
	b.conns = nil
	b.mu.Unlock()
	done := make(chan struct{})
	go func() { b.served.Wait(); close(done) }()
	select {
	case <-done:
		return errors.Join(err, b.listen.Close())
	case <-time.After(lastCalls):
		return err // the end of this process closes the socket
	}
}

// begin adds a connection to those that Close ends. It returns false after Close.
func (b *Broker) begin(conn *fdsock.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		return false
	}
	b.conns[conn] = true
	return true
}

// end closes a connection.
func (b *Broker) end(conn *fdsock.Conn) {
	b.mu.Lock()
	delete(b.conns, conn)
	b.mu.Unlock()
	_ = conn.Close() // nothing more to send
}

// accept serves each stub that connects.
func (b *Broker) accept() {
	for {
		select {
		case b.slots <- struct{}{}:
		case <-b.ended:
			return
		}
		conn, err := b.listen.Accept()
		if slices.ContainsFunc(exhausted[:], func(e error) bool { return errors.Is(err, e) }) {
			<-b.slots
			time.Sleep(untilFree) // descriptors and memory are those of the whole process
			continue
		}
		if err != nil {
			return
		}
		b.served.Go(func() {
			defer func() { <-b.slots }()
			defer b.end(conn)
			if b.begin(conn) {
				b.serve(conn)
			}
		})
	}
}

// serve reads the call of a stub that has connected, and executes the program or refuses it.
func (b *Broker) serve(conn *fdsock.Conn) {
	if there, err := conn.Await(firstMessage); err != nil || !there {
		return
	}
	_, files, err := conn.Receive()
	defer func() { fdsock.CloseAll(files) }()
	if err != nil || len(files) != stub.Files {
		return
	}
	c, err := readCall(conn, b.o.Container.PID())
	if err != nil {
		reply(conn, stub.Exit(notExecuted, "snapfs: reading the arguments: "+err.Error()+"\n"))
		return
	}
	rule, ok := guarded.Allows(b.o.Rules, c.program, c.args)
	why := ""
	switch {
	case !ok:
		why = b.why(c)
	case c.restrictions != b.own:
		why = "its caller has restricted itself further (seccomp, capabilities or its root directory), and the program would not be"
	}
	if why != "" {
		b.refuse(conn, c, why)
		return
	}
	command := isolate.Command{
		Args: append([]string{rule.Name}, c.args[1:]...), Guarded: rule.Program, DirFile: files[0], Stdin: files[1], Stdout: files[2], Stderr: files[3],
	}
	b.identify(&command, c)
	p, err := b.o.Execute(context.Background(), command)
	fdsock.CloseAll(files)
	files = nil
	if err != nil {
		reply(conn, stub.Exit(notExecuted, fmt.Sprintf("snapfs: %s: %v\n", pathlist.Printable(rule.Program), err)))
		return
	}
	defer p.Close() //nolint:errcheck // descriptors only
	b.attend(conn, c, p)
}

// refuse reports that the call c is refused, and why, to the stub and to Options.Refused.
func (b *Broker) refuse(conn *fdsock.Conn, c *call, why string) {
	b.announce(c, why)
	text := fmt.Sprintf("snapfs: %s: refused: %s\n", short(c.args), why)
	reply(conn, stub.Exit(notExecuted, text))
}

// announce passes the call c, which is refused because of why, to Options.Refused.
func (b *Broker) announce(c *call, why string) {
	words := c.args[:min(len(c.args), b.compared(c.program)+1)]
	b.o.Refused(Refusal{Program: c.program, Words: words, By: c.by, Reason: why})
}

// compared returns how many arguments of the program the longest of its rules compares, at least 1.
func (b *Broker) compared(program string) int {
	most := 1
	for _, r := range b.o.Rules {
		if r.Program == program {
			most = max(most, len(r.First))
		}
	}
	return most
}

// why returns why no rule allows the call c, as text for the user.
func (b *Broker) why(c *call) string {
	var list []string
	for _, r := range b.o.Rules {
		if r.Program == c.program && !slices.Contains(list, r.Rule) {
			list = append(list, r.Rule)
		}
	}
	if len(list) == 0 {
		return pathlist.Printable(c.program) + " is no program of a rule with arguments"
	}
	return fmt.Sprintf("tools.allow has %s only as: %s (%s)", pathlist.Printable(c.program), pathlist.Printable(strings.Join(list, ", ")), pathlist.Printable(b.o.Source))
}

// longest is how many bytes of a call's arguments a message has.
const longest = 200

// short returns arguments as text for the user, at most longest bytes of them.
func short(args []string) string {
	text := strings.Join(args, " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return pathlist.Printable(text)
}

// attend passes signals from the stub to the process p of its program, until the program ends; then it has the stub end
// in the same way. If the stub ends first, it kills the program, with the processes of its group.
func (b *Broker) attend(conn *fdsock.Conn, c *call, p *isolate.Process) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		st, err := p.Wait(context.Background())
		switch {
		case err != nil:
			reply(conn, stub.Exit(notExecuted, "snapfs: "+err.Error()+"\n"))
		case st.Signal != 0:
			reply(conn, stub.Killed(st.Signal))
		default:
			reply(conn, stub.Exit(st.Code, ""))
		}
	}()
	for {
		msg, files, err := conn.Receive()
		fdsock.CloseAll(files)
		if err != nil {
			break
		}
		if signal, code, ok := signalIn(msg); ok {
			c.forward(conn, p, signal, code)
		}
	}
	_ = p.SignalGroup(unix.SIGKILL) // it may have ended
	_ = p.Signal(unix.SIGKILL)
	<-ended
}

// signalIn returns the signal that a message of the stub passes on, and its code as in sigaction(2). ok is false if it
// passes on none: a process that connects by itself may send anything.
func signalIn(msg []byte) (signal unix.Signal, code int32, ok bool) {
	if len(msg) != stub.SignalSize {
		return 0, 0, false
	}
	signal, code = unix.Signal(binary.NativeEndian.Uint32(msg)), int32(binary.NativeEndian.Uint32(msg[8:]))
	return signal, code, stub.Forwards(signal)
}

// siKernel is the code of a signal that the kernel has sent, as that of a terminal does (SI_KERNEL of
// asm-generic/siginfo.h).
const siKernel = 0x80

// forward passes a signal that the stub got to the process p. A signal of a terminal is for all processes of the group,
// and another one for the one process. code is that of sigaction(2). The group of p has no parent in its session, so
// SIGTSTP would not stop it (setpgid(2)): SIGSTOP does.
func (c *call) forward(conn *fdsock.Conn, p *isolate.Process, signal unix.Signal, code int32) {
	send := p.Signal
	if code == siKernel || signal == unix.SIGTSTP || signal == unix.SIGCONT {
		send = p.SignalGroup
	}
	switch {
	case signal != unix.SIGCONT && c.ignores(signal):
	case signal == unix.SIGTSTP:
		_ = send(unix.SIGSTOP) // it may have ended
		reply(conn, stub.Stop())
	default:
		_ = send(signal) // it may have ended
	}
}

// reply sends the stub a reply. The stub may have ended.
func reply(conn *fdsock.Conn, r stub.Reply) { _ = conn.Send(r.Message()) }
