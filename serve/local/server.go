package local

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/engine/supervise/connpool"
	"github.com/snapfs/snapfs/engine/supervise/standby"
	"github.com/snapfs/snapfs/internal/run"
)

// A Server holds the resources that a server, which opens the engine anew for each request, reuses from one request to
// the next: processes that supervise one sandbox after another, connections to supervisors, the removed sandboxes
// whose files it deletes, and the time of the last garbage collection. None of it is state: the server may be killed
// at any time.
type Server struct {
	pool        *standby.Pool
	connections connpool.Pool
	sweepTimer  *sweepTimer
	registered  atomic.Bool   // Options.register was called for the state directory
	slots       chan struct{} // one for each call of Do that runs in the background
	running     sync.WaitGroup
}

// maxBackground is how many functions of [Server.Do] run at once in the background. They mostly wait for the disk.
const maxBackground = 16

// Sweep starts the garbage collection with the command line args now, or once sweepInterval has passed since the last.
func (s *Server) Sweep(args []string) error { return s.sweepTimer.later(args) }

// Do runs f in the background, where [Server.Close] waits for it, or in this goroutine if maxBackground functions run
// already.
func (s *Server) Do(f func()) {
	select {
	case s.slots <- struct{}{}:
		s.running.Go(func() {
			defer func() { <-s.slots }()
			f()
		})
	default:
		f()
	}
}

// NewServer returns a Server for the engine of a state directory; program is the path of snapfs. The caller
// calls Close.
func NewServer(state, program string) *Server {
	return &Server{
		slots:      make(chan struct{}, maxBackground),
		pool:       standby.New([]string{program, "standby", state}, max(2, runtime.NumCPU())),
		sweepTimer: &sweepTimer{interval: sweepInterval, start: func(args []string) error { return run.Detached(args, nil) }},
	}
}

// Close ends the processes that wait for a sandbox, waits for the functions that run in the background, and starts a
// garbage collection that was put off.
func (s *Server) Close() {
	s.connections.Close()
	s.pool.Close()
	s.running.Wait()
	s.sweepTimer.close()
}

// sweepInterval is the least time between the starts of two garbage collections of a server. A request within
// it is put off to its end.
const sweepInterval = 2 * time.Second

// A sweepTimer starts garbage collections for a server, at most one per interval. A request within the interval
// is served by one collection at its end.
type sweepTimer struct {
	interval time.Duration
	start    func(args []string) error

	mu      sync.Mutex
	last    time.Time
	timer   *time.Timer // of the next collection; nil if nobody asked for one
	pending func()      // starts that collection
	closed  bool
}

// later starts the garbage collection with the command line args now, or when the interval has passed.
func (s *sweepTimer) later(args []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		return nil
	}
	wait := s.interval - time.Since(s.last)
	if wait <= 0 || s.closed {
		s.last = time.Now()
		return s.start(args)
	}
	s.pending = func() {
		s.last, s.timer = time.Now(), nil
		_ = s.start(args) // the next removal asks again
	}
	s.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer != nil {
			s.pending()
		}
	})
	return nil
}

// close starts the garbage collection that was put off, if there is one.
func (s *sweepTimer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.pending()
	}
}
