package view

import (
	"context"
	"errors"
	"syscall"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/hostview"
)

// Show opens the view of a sandbox, a host directory that shows its workspace, for a person's editor or file
// manager, as [Open] does with the same viewer, and returns the directory. It is open until [Hide], or until
// the sandbox's processes are ended otherwise. A view that is open already is returned. Errors: those of
// Open; errs.ErrInvalid if the view that is open is not read-only as asked, or the other way round.
func Show(ctx context.Context, e *engine.Engine, viewer func() ([]string, error), sandbox string, readOnly bool) (dir string, err error) {
	v, err := Of(e, sandbox)
	if err != nil {
		return "", err
	}
	v.ReadOnly = readOnly
	if opened, err := Open(ctx, e, viewer, v); err != nil || opened {
		return v.At, err
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(v.At, &st); err != nil {
		return "", errs.With("opening", v.At, err)
	}
	const stReadOnly = 1 // ST_RDONLY of statfs(2)
	if is := st.Flags&stReadOnly != 0; is != readOnly {
		how := "writable"
		if is {
			how = "read-only"
		}
		return "", errs.New("opening", v.Sandbox, errs.ErrInvalid, "it is open already, and "+how, "snapfs open --close "+errs.Quoted(v.Sandbox))
	}
	return v.At, nil
}

// Hide closes the view that [Show] has opened; what runs in the sandbox for it ends. A view that is not open is
// no error. Errors: errs.ErrNotFound.
func Hide(ctx context.Context, e *engine.Engine, sandbox string) error {
	v, err := Of(e, sandbox)
	if err != nil {
		return err
	}
	return Close(ctx, e, v)
}

// Sweep unmounts the view of a sandbox that nobody serves any more, and removes its directory. It leaves one
// that is served, or that another process opens or closes now. Cost: some system calls.
func Sweep(ctx context.Context, e *engine.Engine, sandbox string) error {
	at := At(e.StateDir(), sandbox)
	unlock, err := lock(e, sandbox, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := e.Catalog().Get(sandbox); err == nil && hostview.Alive(at) {
		return nil
	}
	err = hostview.Unmount(ctx, at)
	hostview.RemoveEmpty(at)
	return errs.With("closing a view", at, err)
}
