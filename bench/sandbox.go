//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/run"
)

func policy() catalog.Policy { return catalog.Policy{Network: "none"} }

// searchPath returns the PATH of measured programs, inside and outside of sandboxes.
func searchPath() string { return "PATH=" + os.Getenv("PATH") }

// truth returns the command true(1), the smallest one, to run in a sandbox in the directory dir.
func truth(dir string) engine.Command {
	return engine.Command{Args: []string{"/bin/true"}, Env: []string{searchPath()}, Dir: dir}
}

func execTrue(ctx context.Context, e *engine.Engine, name, dir string) error {
	return execWait(ctx, e, name, dir, "/bin/true")
}

// execWait runs the command args in dir in the sandbox called name and waits for its end; a status other than
// 0 is an error.
func execWait(ctx context.Context, e *engine.Engine, name, dir string, args ...string) error {
	p, err := e.Supervise.Exec(ctx, name, engine.Command{Args: args, Env: []string{searchPath()}, Dir: dir})
	if err != nil {
		return err
	}
	st, err := p.Wait(ctx)
	if err == nil && st.ExitCode() != 0 {
		err = fmt.Errorf("%s in a sandbox: exit status %d", args[0], st.ExitCode())
	}
	return errors.Join(err, p.Close())
}

// startSleeper starts a command in the sandbox called name that sleeps until the sandbox is removed, so that
// the sandbox is running.
func startSleeper(ctx context.Context, e *engine.Engine, name, dir string) error {
	return execWait(ctx, e, name, dir, "/bin/sh", "-c", "sleep 100000 >/dev/null 2>&1 </dev/null &")
}

// A processes times runs of whole processes, such as `snapfs run`, in one directory with one environment.
type processes struct {
	lab  *lab
	s    setting
	dir  string
	made []*run.Timed
	err  error
}

// env returns the environment variables with which the setting's user runs measured programs.
func (s setting) env() []string {
	return []string{searchPath(), "HOME=" + s.Dir, "SNAPFS_HOME=" + s.State, "TMPDIR=" + scratch, "LC_ALL=C"}
}

// timed returns the timed operation that runs snapfs with args as a process. name appears in the report.
func (p *processes) timed(name string, args ...string) timing.Subject {
	return p.program(name, p.lab.Program, args...)
}

// other returns the timed operation that runs another program, with args as its command line. name appears in
// the report.
func (p *processes) other(name string, args ...string) timing.Subject {
	return p.program(name, args[0], args[1:]...)
}

func (p *processes) program(name, program string, args ...string) timing.Subject {
	t, err := run.Prepare(run.Program{Name: program, Args: args, Env: p.s.env(), Dir: p.dir})
	if errors.Is(err, run.ErrMissing) {
		return timing.Subject{Name: name, Do: func(context.Context) (time.Duration, error) { return 0, err }}
	}
	if err != nil {
		p.err = errors.Join(p.err, err)
		return timing.Subject{}
	}
	p.made = append(p.made, t)
	return timing.Subject{Name: name, Do: t.Run}
}

func (p *processes) close() {
	for _, t := range p.made {
		t.Close()
	}
}
