package agenthook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/isolate/hostview"
)

// ViewsDir returns the directory for the views of a state directory: host directories in which coding agents
// see the files of their sandboxes. It lies where no sandbox shows the host's files, and where nothing
// survives a reboot.
func ViewsDir(state string) string {
	if real, err := filepath.EvalSymlinks(state); err == nil {
		state = real
	}
	sum := sha256.Sum256([]byte(state))
	id := hex.EncodeToString(sum[:4])
	if os.Geteuid() == 0 {
		return filepath.Join("/run/snapfs-views", id)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && within(dir, "/run") {
		return filepath.Join(dir, "snapfs", id)
	}
	return filepath.Join("/tmp", "snapfs-"+strconv.Itoa(os.Geteuid()), id)
}

// within reports whether path is dir or lies under it.
func within(path, dir string) bool { return hostfs.Within(path, dir) }

// makeViewsDir creates the directory for the views of agents' sandboxes, which only this user can enter, and
// returns its path. Errors: errs.ErrDenied if it belongs to another user.
func makeViewsDir(state string) (dir string, err error) {
	const tries = 10 // another session's end may take an empty directory away
	for range tries {
		if dir, err = tryViewsDir(ViewsDir(state)); !errors.Is(err, errs.ErrNotFound) {
			break
		}
	}
	return dir, err
}

func tryViewsDir(dir string) (string, error) {
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", errs.With("making the directory of views", d, err)
		}
		if err := onlyOurs(d); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// sandboxAt returns the name of the sandbox whose view, the host directory that shows it to an agent,
// contains path; "" if none does.
func sandboxAt(state, path string) string {
	rest, ok := strings.CutPrefix(path, ViewsDir(state)+"/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// control returns the path of the socket of the process that serves a sandbox's view, the host directory that
// shows the sandbox to an agent.
func control(e *engine.Engine, sandbox string) string {
	return filepath.Join(e.Catalog().Path(sandbox), "view")
}

// openView shows the workspace of a sandbox at the directory l.View of the host, for a coding agent, until
// the agent's process l.Owner ends. It returns when the agent can use it. It starts the sandbox. The caller
// has locked the view. viewer returns the command line of the program that serves it. Inside, a symbolic link
// at the same path leads to the workspace, so that a command can use the paths that the agent uses.
func openView(ctx context.Context, e *engine.Engine, viewer func() ([]string, error), l *Lease) error {
	program, err := viewer()
	if err != nil {
		return err
	}
	// The last view may be ending by itself, and then takes away what is made at its place.
	if err := hostview.EndAt(control(e, l.Sandbox)); err != nil {
		return errs.With("ending the last view", l.View, err)
	}
	s, err := enter(ctx, e, l)
	if err != nil {
		return err
	}
	defer s.Close()
	s.ReadOnly = l.readOnly
	if err := hostview.Unmount(ctx, l.View); err != nil { // of a process that was killed
		return errs.With("making a view", l.View, err)
	}
	err = os.Mkdir(l.View, 0o700)
	if errors.Is(err, os.ErrNotExist) { // the last view has just taken the directory with it
		if _, err = makeViewsDir(e.StateDir()); err == nil {
			err = os.Mkdir(l.View, 0o700)
		}
	}
	if err != nil {
		return errs.With("making a view", l.View, err)
	}
	if err := hostview.Start(ctx, program, l.View, control(e, l.Sandbox), l.Workspace, s, l.Owner.PID); err != nil {
		return errors.Join(errs.With("making a view", l.View, err), os.Remove(l.View))
	}
	return nil
}

// holder is the shell command that runs in a sandbox as long as a view of the sandbox exists, and keeps the
// sandbox running. Its input is a pipe whose other end the view's process has; it ignores the end of its
// client, which is this process.
const holder = `trap "" HUP; mkdir -p "${1%/*}" && ln -sfn "$2" "$1"; echo; exec cat 3>&1 >/dev/null`

// enter starts a process in the sandbox that lives as long as the view, the host directory that shows the
// sandbox to an agent, and opens the workspace as that process sees it.
func enter(ctx context.Context, e *engine.Engine, l *Lease) (_ *hostview.Source, err error) {
	s := &hostview.Source{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	input, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	s.Hold = hold
	ended, output, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer output.Close()
	s.Ended = ended
	c := isolate.Command{
		Args: []string{"/bin/sh", "-c", holder, "snapfs-view", l.View, l.Workspace}, Env: hostfs.Environ(os.Environ(), nil), Dir: "/",
		Stdin: input, Stdout: output,
	}
	// The client is not closed: the command is to outlive it.
	if _, err = e.Supervise.ExecWith(ctx, l.Sandbox, c, supervise.ExecOptions{}); err != nil {
		return nil, err
	}
	output.Close()
	if _, err := ended.Read(make([]byte, 1)); err != nil {
		return nil, errs.New("making a view", l.Sandbox, errs.ErrInterrupted, "the sandbox ended at once")
	}
	rec, err := e.Catalog().Get(l.Sandbox)
	if err != nil {
		return nil, err
	}
	if rec.Supervisor == nil {
		return nil, errs.New("making a view", l.Sandbox, errs.ErrInterrupted, "the sandbox has ended")
	}
	s.Tree, s.Base, err = hostview.OpenTree(rec.Supervisor.PID, rec.Workspace)
	return s, errs.With("making a view", l.Sandbox, err)
}

// closeView unmounts the view of a sandbox, the host directory that shows it to an agent, and ends the
// process that serves it. A view that does not exist is no error.
func closeView(ctx context.Context, e *engine.Engine, l *Lease) error {
	unlock, err := lockView(e, l.Sandbox)
	if err != nil {
		return err
	}
	defer unlock()
	err = hostview.EndAt(control(e, l.Sandbox))
	err = errors.Join(errs.With("closing a view", l.View, err), hostview.Unmount(ctx, l.View))
	hostview.RemoveEmpty(l.View)
	return err
}

// lockView waits until no other process opens or closes the view of a sandbox, the host directory that shows
// it to an agent, and locks it until unlock is called. For a sandbox that does not exist any more it locks
// nothing.
func lockView(e *engine.Engine, sandbox string) (unlock func(), err error) {
	f, err := os.OpenFile(control(e, sandbox)+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err == nil {
		if err = vfs.Flock(f, syscall.LOCK_EX); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, errs.With("locking the view of", sandbox, err)
	}
	return func() { f.Close() }, nil
}

// idleTime is how long to wait for the processes that serve an agent's view of a sandbox to end, before the
// sandbox counts as busy.
const idleTime = 3 * time.Second

// withoutView calls do while the view of a sandbox has no file of it open, so that do can replace the
// sandbox's files. The view stays mounted, and programs that use it wait. Afterwards the view shows the
// sandbox as do left it, also after an error. Errors: errs.ErrBusy if other processes run in the sandbox.
func withoutView(ctx context.Context, e *engine.Engine, l *Lease, do func() error) error {
	c, err := hostview.Dial(control(e, l.Sandbox))
	if err != nil {
		return do() // there is no view
	}
	defer c.Close() //nolint:errcheck // a view without a directory ends with it
	if err := c.Leave(); err != nil {
		return errs.With("leaving a view", l.View, err)
	}
	err = do()
	for end := time.Now().Add(idleTime); errors.Is(err, errs.ErrBusy) && time.Now().Before(end); err = do() {
		time.Sleep(5 * time.Millisecond) // the sandbox ends once its last process has
	}
	s, eerr := enter(ctx, e, l)
	if eerr != nil {
		return errors.Join(err, eerr)
	}
	defer s.Close()
	return errors.Join(err, errs.With("returning to a view", l.View, c.Enter(s)))
}

// agentProcess returns the process of the coding agent, which started this process as a hook: the nearest
// ancestor that is not a shell.
func agentProcess() (proc.Process, error) {
	pid := os.Getppid()
	for {
		name, parent, err := describe(pid)
		if err != nil {
			return proc.Process{}, err
		}
		switch name {
		case "sh", "bash", "dash", "zsh", "ksh", "fish", "env", "timeout":
			if parent > 1 {
				pid = parent
				continue
			}
		}
		return proc.Identify(pid)
	}
}

// describe returns the name of the process pid and the pid of its parent, to find the coding agent among the
// ancestors of this process.
func describe(pid int) (name string, parent int, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	// "PID (NAME) STATE PARENT ...", see proc_pid_stat(5); the name may hold anything.
	begin, end := strings.IndexByte(string(data), '('), strings.LastIndexByte(string(data), ')')
	if begin < 0 || end < begin {
		return "", 0, fmt.Errorf("reading the state of process %d: %q", pid, data)
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 2 {
		return "", 0, fmt.Errorf("reading the state of process %d: %q", pid, data)
	}
	parent, err = strconv.Atoi(fields[1])
	return string(data[begin+1 : end]), parent, err
}
