package view

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/isolate/hostview"
)

// A View is a directory of the host that shows the workspace of a sandbox to programs outside of it: a coding
// agent's own file tools, or a person's editor. The sandbox runs as long as it is open.
type View struct {
	// Sandbox is the sandbox's name, and Workspace its workspace on the host.
	Sandbox, Workspace string
	// At is the directory, NAME in [Dir] for a sandbox of this name.
	At string
	// Owner is the process with whose end the view ends, or 0: it is open until [Close], or until the sandbox ends.
	Owner int
	// ReadOnly makes writes in it fail with EROFS.
	ReadOnly bool
}

// Dir returns the directory for the views of a state directory: host directories that show the files of
// sandboxes. It lies where no sandbox shows the host's files, and where nothing survives a reboot.
func Dir(state string) string {
	if real, err := filepath.EvalSymlinks(state); err == nil {
		state = real
	}
	sum := sha256.Sum256([]byte(state))
	id := hex.EncodeToString(sum[:4])
	if os.Geteuid() == 0 {
		return filepath.Join("/run/snapfs-views", id)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && hostfs.Within(dir, "/run") {
		return filepath.Join(dir, "snapfs", id)
	}
	return filepath.Join("/tmp", "snapfs-"+strconv.Itoa(os.Geteuid()), id)
}

// makeDir creates the directory for the views of sandboxes of the state directory state, which only this user
// can enter, and returns its path. Errors: errs.ErrDenied if it belongs to another user.
func makeDir(state string) (dir string, err error) {
	const tries = 10 // the end of another view may take an empty directory away
	for range tries {
		if dir, err = tryDir(Dir(state)); !errors.Is(err, errs.ErrNotFound) {
			break
		}
	}
	return dir, err
}

func tryDir(dir string) (string, error) {
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

// SandboxAt returns the name of the sandbox, in the state directory state, whose view, the host directory
// that shows it, contains path; "" if none does.
func SandboxAt(state, path string) string {
	rest, ok := strings.CutPrefix(path, Dir(state)+"/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// control returns the path of the socket of the process that serves a sandbox's view, the host directory that
// shows the sandbox.
func control(e *engine.Engine, sandbox string) string {
	return filepath.Join(e.Catalog().Path(sandbox), catalog.ViewSocket)
}

// Of returns the view that a sandbox has, or would have if it were open; its Owner is 0. Errors: errs.ErrNotFound
// if there is no such sandbox.
func Of(e *engine.Engine, sandbox string) (View, error) {
	rec, err := e.Catalog().Get(sandbox)
	if err != nil {
		return View{}, err
	}
	return View{Sandbox: rec.Name, Workspace: rec.Workspace, At: At(e.StateDir(), rec.Name)}, nil
}

// At returns the path of the host directory for the view of a sandbox of the state directory state. Programs
// outside see the sandbox's workspace there.
func At(state, sandbox string) string { return filepath.Join(Dir(state), sandbox) }

// Open shows the workspace of a sandbox at the directory v.At of the host, and starts the sandbox if it does
// not run. It returns when programs can use the directory; opened is false if the view is open already.
// viewer returns the command line of the program that serves the view. Inside, a symbolic link at the same
// path leads to the workspace, so that a command can use the paths that programs outside use. After an error
// nothing is mounted. Errors: also errs.ErrDenied if the directory of views belongs to another user.
func Open(ctx context.Context, e *engine.Engine, viewer func() ([]string, error), v View) (opened bool, err error) {
	unlock, err := lock(e, v.Sandbox, syscall.LOCK_EX)
	if err != nil {
		return false, err
	}
	defer unlock()
	if hostview.Alive(v.At) {
		return false, nil
	}
	if _, err := makeDir(e.StateDir()); err != nil {
		return false, err
	}
	return true, open(ctx, e, viewer, v)
}

// open is Open for a view, a host directory that shows a sandbox, that is not open and that this process has
// locked.
func open(ctx context.Context, e *engine.Engine, viewer func() ([]string, error), v View) error {
	program, err := viewer()
	if err != nil {
		return err
	}
	// The last view may be ending by itself, and then takes away what is made at its place.
	if err := hostview.EndAt(control(e, v.Sandbox)); err != nil {
		return errs.With("ending the last view", v.At, err)
	}
	s, err := enter(ctx, e, v)
	if err != nil {
		return err
	}
	defer s.Close()
	s.ReadOnly = v.ReadOnly
	if err := hostview.Unmount(ctx, v.At); err != nil { // of a process that was killed
		return errs.With("making a view", v.At, err)
	}
	err = os.Mkdir(v.At, 0o700)
	if errors.Is(err, os.ErrNotExist) { // the last view has just taken the directory with it
		if _, err = makeDir(e.StateDir()); err == nil {
			err = os.Mkdir(v.At, 0o700)
		}
	}
	if err != nil {
		return errs.With("making a view", v.At, err)
	}
	if err := hostview.Start(ctx, program, v.At, control(e, v.Sandbox), v.Workspace, s, v.Owner); err != nil {
		return errors.Join(errs.With("making a view", v.At, err), os.Remove(v.At))
	}
	return nil
}

// holder is the shell command that runs in a sandbox as long as a view (a host directory that shows the
// sandbox) exists, and keeps the sandbox running. It makes the link from the view's path to the workspace,
// and ends when the process that serves the view closes its standard input. It ignores the hang-up signal,
// since this process, which started it, ends before.
const holder = `trap "" HUP; mkdir -p "${1%/*}" && ln -sfn "$2" "$1"; echo; exec cat 3>&1 >/dev/null`

// enter starts a process in the sandbox that lives as long as the view, the host directory that shows the
// sandbox, and opens the workspace as that process sees it.
func enter(ctx context.Context, e *engine.Engine, v View) (_ *hostview.Source, err error) {
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
		Args: []string{"/bin/sh", "-c", holder, "snapfs-view", v.At, v.Workspace}, Env: hostfs.Environ(os.Environ(), nil), Dir: "/",
		Stdin: input, Stdout: output,
	}
	// The client is not closed: the command is to outlive it.
	if _, err = e.Supervise.ExecWith(ctx, v.Sandbox, c, supervise.ExecOptions{}); err != nil {
		return nil, err
	}
	output.Close()
	if _, err := ended.Read(make([]byte, 1)); err != nil {
		return nil, errs.New("making a view", v.Sandbox, errs.ErrInterrupted, "the sandbox ended at once")
	}
	rec, err := e.Catalog().Get(v.Sandbox)
	if err != nil {
		return nil, err
	}
	if rec.Supervisor == nil {
		return nil, errs.New("making a view", v.Sandbox, errs.ErrInterrupted, "the sandbox has ended")
	}
	s.Tree, s.Base, err = hostview.OpenTree(rec.Supervisor.PID, rec.Workspace)
	return s, errs.With("making a view", v.Sandbox, err)
}

// Close unmounts the view of a sandbox, the host directory that shows it, and ends the process that serves
// it. A view that does not exist is no error.
func Close(ctx context.Context, e *engine.Engine, v View) error {
	unlock, err := lock(e, v.Sandbox, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	err = hostview.EndAt(control(e, v.Sandbox))
	err = errors.Join(errs.With("closing a view", v.At, err), hostview.Unmount(ctx, v.At))
	hostview.RemoveEmpty(v.At)
	return err
}

// lock waits until no other process opens or closes the view of a sandbox, the host directory that shows it,
// and locks it until unlock is called. For a sandbox that does not exist any more it locks nothing. how is
// that of flock(2): with LOCK_NB it does not wait, and returns EWOULDBLOCK.
func lock(e *engine.Engine, sandbox string, how int) (unlock func(), err error) {
	f, err := os.OpenFile(control(e, sandbox)+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err == nil {
		if err = vfs.Flock(f, how); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, errs.With("locking the view of", sandbox, err)
	}
	return func() { f.Close() }, nil
}

// IdleTime is how long an operation that needs an idle sandbox waits for the processes that serve a view of
// it to end, before the sandbox counts as busy.
const IdleTime = 3 * time.Second

// Without calls do while the view of a sandbox has no file of it open, so that do can replace the
// sandbox's files. The view stays mounted, and programs that use it wait. Afterwards the view shows the
// sandbox as do left it, also after an error. Errors: errs.ErrBusy if other processes run in the sandbox.
func Without(ctx context.Context, e *engine.Engine, v View, do func() error) error {
	c, err := hostview.Dial(control(e, v.Sandbox))
	if err != nil {
		return do() // there is no view
	}
	defer c.Close() //nolint:errcheck // a view without a directory ends with it
	if err := c.Leave(); err != nil {
		return errs.With("leaving a view", v.At, err)
	}
	err = do()
	for end := time.Now().Add(IdleTime); errors.Is(err, errs.ErrBusy) && time.Now().Before(end); err = do() {
		time.Sleep(5 * time.Millisecond) // the sandbox ends once its last process has
	}
	s, eerr := enter(ctx, e, v)
	if eerr != nil {
		return errors.Join(err, eerr)
	}
	defer s.Close()
	return errors.Join(err, errs.With("returning to a view", v.At, c.Enter(s)))
}
