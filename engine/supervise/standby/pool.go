// Package standby lets one process supervise several sandboxes, one after another, so that a server need not
// start a process for each.
//
// Read [Pool] first, which a server has; then [Serve], the main function of the processes that it starts.
package standby

import (
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/run"
)

// A Pool holds supervisor processes in which no sandbox runs any more, and starts new ones. A process that
// waits has no sandbox, no lock and no file of one, so that ending it loses nothing. When the process that owns
// the Pool ends, also by SIGKILL, waiting processes end, and busy ones end after their sandbox. It is safe for
// concurrent use.
type Pool struct {
	program  []string
	most     int
	idleTime time.Duration

	mu     sync.Mutex
	idle   []*supervisor          // the most recently used is last
	busy   map[string]*supervisor // by the name of the sandbox
	closed bool
}

// A supervisor is a process that supervises one sandbox at a time, or waits for one.
type supervisor struct {
	process *os.Process
	conn    *net.UnixConn
	expiry  *time.Timer   // while it waits
	ended   chan struct{} // closed when it has ended and was reaped
	sandbox string        // which it supervises; "" while it waits
	done    chan struct{} // closed when it no longer supervises the sandbox
}

// defaultIdleTime is how long a supervisor process waits for its next sandbox before the Pool ends it.
const defaultIdleTime = time.Minute

// New returns a Pool of processes that the command line program starts; their main function is [Serve]. At
// most most processes wait at once. It starts none yet.
func New(program []string, most int) *Pool {
	return &Pool{program: program, most: most, idleTime: defaultIdleTime, busy: map[string]*supervisor{}}
}

// Start lets a process that waits supervise the sandbox called name, and starts a process if none waits. The
// process gets duplicates of the files: its log, the pipe to which it reports, the sandbox's lock and its
// admission slot. An error means that no process has got the sandbox.
func (p *Pool) Start(name string, log, ready, lock, slot *os.File) error {
	rights := syscall.UnixRights(int(log.Fd()), int(ready.Fd()), int(lock.Fd()), int(slot.Fd()))
	for s := p.take(); s != nil; s = p.take() {
		if p.send(s, name, rights) == nil {
			return nil
		}
		s.hangUp() // it was killed while it waited
	}
	s, err := p.start()
	if err != nil {
		return err
	}
	if err := p.send(s, name, rights); err != nil {
		s.hangUp()
		return err
	}
	return nil
}

// send makes the process s, which is no longer in the pool, supervise the sandbox called name.
func (p *Pool) send(s *supervisor, name string, rights []byte) error {
	p.mu.Lock()
	s.sandbox, s.done = name, make(chan struct{})
	p.busy[name] = s
	p.mu.Unlock()
	_, _, err := s.conn.WriteMsgUnix([]byte(name), rights, nil)
	if err != nil {
		p.finish(s)
	}
	return err
}

// finish notes that the process s no longer supervises a sandbox, and closes its channel of Done.
func (p *Pool) finish(s *supervisor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.sandbox == "" {
		return
	}
	if p.busy[s.sandbox] == s { // a later sandbox may have the name
		delete(p.busy, s.sandbox)
	}
	s.sandbox = ""
	close(s.done)
}

// Done returns a channel that is closed when the process that now supervises the sandbox called name has finished with
// it, or has ended. It returns nil if no process of the pool supervises the sandbox, and if p is nil.
func (p *Pool) Done(name string) <-chan struct{} {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.busy[name]; s != nil {
		return s.done
	}
	return nil
}

// hangUp closes the connection to the process. A process without a sandbox then ends at once, one with a sandbox
// after it.
func (s *supervisor) hangUp() { _ = s.conn.Close() } // a second time it is closed already

// start starts a process that waits for a sandbox. A goroutine reaps it.
func (p *Pool) start() (*supervisor, error) {
	conn, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	s := &supervisor{conn: conn, ended: make(chan struct{})}
	if s.process, err = run.Background(p.program, nil, theirs); err != nil {
		s.hangUp()
		return nil, err
	}
	go p.follow(s)
	return s, nil
}

// follow puts a process back into the pool each time it reports that its sandbox has ended, until the process
// ends or the pool has ended it. Then it reaps the process.
func (p *Pool) follow(s *supervisor) {
	report := make([]byte, 1)
	for {
		n, err := s.conn.Read(report)
		if err != nil || n == 0 {
			break
		}
		p.finish(s)
		p.put(s)
	}
	p.finish(s)
	p.drop(s)
	s.hangUp()
	_, _ = s.process.Wait() // its error would be that there is no such process
	close(s.ended)
}

// take removes the process that has waited for the shortest time from the pool, and returns nil if none waits.
func (p *Pool) take() *supervisor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	s := p.idle[last]
	p.idle = p.idle[:last]
	s.expiry.Stop()
	return s
}

// put adds a process that waits for a sandbox, or ends it if enough wait already.
func (p *Pool) put(s *supervisor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.most {
		s.hangUp()
		return
	}
	p.idle = append(p.idle, s)
	s.expiry = time.AfterFunc(p.idleTime, func() {
		if p.drop(s) {
			s.hangUp()
		}
	})
}

// drop removes a process from those that wait, and reports whether it was one of them: only then may the
// caller end it, because no sandbox has taken it meanwhile.
func (p *Pool) drop(s *supervisor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.idle, s)
	if i < 0 {
		return false
	}
	s.expiry.Stop()
	p.idle = slices.Delete(p.idle, i, i+1)
	return true
}

// endTime bounds how long [Pool.Close] waits for the end of the processes, which takes some milliseconds
// unless one is stopped by a signal. That one ends when it continues.
const endTime = time.Second

// Close ends the processes that wait. Those with a sandbox end after it. The caller starts no more.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.closed, p.idle = true, nil
	for _, s := range idle {
		s.expiry.Stop()
		s.hangUp()
	}
	p.mu.Unlock()
	late := time.After(endTime)
	for _, s := range idle {
		select {
		case <-s.ended:
		case <-late:
			return
		}
	}
}

// pair returns the two ends of a connection that preserves message boundaries; the second is for a child
// process.
func pair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // so that no child inherits the ends before they are marked
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "pool")
	conn, err := net.FileConn(ours)
	ours.Close() // conn has a duplicate
	if unix, ok := conn.(*net.UnixConn); ok && err == nil {
		return unix, theirs, nil
	}
	theirs.Close()
	return nil, nil, err
}
