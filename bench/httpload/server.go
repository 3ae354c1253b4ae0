//go:build linux

package httpload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/run"
)

// A Server is a running process of `snapfs serve` that listens on a unix socket. [Start] starts it.
type Server struct {
	process *os.Process
	self    string
	state   string
	socket  string
	log     string
}

// startTimeout bounds how long [Start] waits until the server answers. After that it ends the server and
// returns an error with the server's output.
const startTimeout = time.Minute

// Start starts the program snapfs at path as a server of the state directory. Sandboxes are copies of the
// directory workspace, made with the named backend. Files of the server lie in the directory dir. self is the program
// that takes the role [RoleWrite]. The caller calls Close.
func Start(ctx context.Context, path, self, state, workspace, backend, dir string) (*Server, error) {
	s := &Server{self: self, state: state, socket: filepath.Join(dir, "serve.sock"), log: filepath.Join(dir, "serve.log")}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	env := append(os.Environ(), "SNAPFS_HOME="+state)
	s.process, err = run.BackgroundIn(env, []string{path, "serve", "-C", workspace, "--backend", backend, "--socket", s.socket}, log)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", s.socket)
		if err == nil {
			return s, c.Close()
		}
		if said, _ := os.ReadFile(s.log); ctx.Err() != nil || time.Now().After(end) || strings.HasPrefix(string(said), "snapfs: error") {
			return nil, errors.Join(err, ctx.Err(), errors.New(string(said)), s.Close())
		}
	}
}

// Close ends the server and waits for its end.
func (s *Server) Close() error {
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_, err := s.process.Wait()
	return errors.Join(err, os.RemoveAll(s.socket))
}

// tick is the unit of times in the files /proc/PID/stat, on every Linux.
const tick = 10 * time.Millisecond

// Processor returns the processor time that the server and its descendants have used, those that have ended
// included. Cost: it reads the file stat of every process of the host.
func (s *Server) Processor() (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	used, parents := map[string]time.Duration{}, map[string]string{}
	for _, path := range stats {
		data, _ := os.ReadFile(path) // one that cannot be read has just ended
		i := bytes.LastIndexByte(data, ')')
		f := strings.Fields(string(data[i+1:])) // from the state on, see proc(5)
		const parent, first, last = 1, 11, 14   // utime, stime, cutime and cstime
		if len(f) <= last {
			continue
		}
		pid := filepath.Base(filepath.Dir(path))
		parents[pid] = f[parent]
		for _, text := range f[first : last+1] {
			n, err := strconv.Atoi(text)
			if err != nil {
				return 0, err
			}
			used[pid] += time.Duration(n) * tick
		}
	}
	server := strconv.Itoa(s.process.Pid)
	if _, there := used[server]; !there {
		return 0, errors.New("the server has ended")
	}
	var sum time.Duration
	for pid, n := range used {
		for at := pid; at != ""; at = parents[at] {
			if at == server {
				sum += n
				break
			}
		}
	}
	return sum, nil
}

// PeakMemory returns the largest resident memory that the server has had so far, in bytes.
func (s *Server) PeakMemory() (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", s.process.Pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no line VmHWM", path)
}
