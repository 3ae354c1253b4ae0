package view

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/hostview"
)

// Show shows the workspace of a sandbox at a directory of the host, for a person's editor or file
// manager, and returns that directory. It starts the sandbox, which then runs until [Hide], or until
// its processes are ended otherwise, and the view ends with it. With readOnly, writes there fail with EROFS.
// viewer returns the command line of the program that serves the view. A view that is open already is
// returned, also that of an agent's session. Errors: errs.ErrNotFound; errs.ErrInvalid if the view that is
// open is not read-only as asked, or the other way round.
func Show(ctx context.Context, e *engine.Engine, viewer func() ([]string, error), sandbox string, readOnly bool) (dir string, err error) {
	rec, err := e.Catalog().Get(sandbox)
	if err != nil {
		return "", err
	}
	views, err := MakeDir(e.StateDir())
	if err != nil {
		return "", err
	}
	v := View{Sandbox: rec.Name, Workspace: rec.Workspace, At: filepath.Join(views, rec.Name), ReadOnly: readOnly}
	unlock, err := Lock(e, rec.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if hostview.Alive(v.At) {
		var st syscall.Statfs_t
		if err := syscall.Statfs(v.At, &st); err != nil {
			return "", errs.With("opening", v.At, err)
		}
		const stReadOnly = 1 // ST_RDONLY of statfs(2)
		if is := st.Flags&stReadOnly != 0; is != readOnly {
			how := map[bool]string{true: "read-only", false: "writable"}
			return "", errs.New("opening", rec.Name, errs.ErrInvalid, "it is open already, and "+how[is], "snapfs open --close "+errs.Quoted(rec.Name))
		}
		return v.At, nil
	}
	return v.At, Open(ctx, e, viewer, v)
}

// Hide closes the view that [Show] has opened; what runs in the sandbox for it ends. A view that is not open is
// no error. Errors: errs.ErrNotFound.
func Hide(ctx context.Context, e *engine.Engine, sandbox string) error {
	rec, err := e.Catalog().Get(sandbox)
	if err != nil {
		return err
	}
	return Close(ctx, e, View{Sandbox: rec.Name, At: filepath.Join(Dir(e.StateDir()), rec.Name)})
}

// IsOpen reports whether the process of a view, a directory of the host that shows a sandbox, serves it, or is
// about to.
func IsOpen(e *engine.Engine, view string) bool {
	name := filepath.Base(view)
	if _, err := e.Catalog().Get(name); err != nil {
		return false
	}
	f, err := os.Open(control(e, name) + ".lock")
	if err != nil {
		return false
	}
	defer f.Close()
	if err := vfs.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return true
	}
	return hostview.Alive(view)
}
