//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Freezer keeps states of trees, each in a directory from which it is read and where
// nobody can change it. Errors are the contract's, those of [snapshot.Backend.Capture].
type Freezer interface {
	// Holds says why the tree at a path cannot be frozen, or nil. It makes nothing.
	Holds(ctx context.Context, tree string) error
	// Name is what the next state of a tree is to be called: nothing else ever is. It
	// makes nothing.
	Name(tree string) (state string, err error)
	// Freeze makes a state that has been named, of the tree as it is now. What it leaves
	// after an error, or when its process is killed, Thaw takes away.
	Freeze(ctx context.Context, tree, state string) error
	// Path is the directory that a state is read from, now and here.
	Path(state string) (string, error)
	// Thaw takes states away for good, wholly or in part made, and answers with those that
	// somebody uses still, which have to wait. Those that are not there, or are not ours, are
	// passed over. Repeating it is harmless.
	Thaw(ctx context.Context, states []string) (busy []string, err error)
}

// A note is a file in states/ and the state that it tells of: "" where its maker was
// killed before it was whole, and so before anything was made.
type stateNote struct {
	path, state string
	// open: its maker was killed, and what it had started may be about to make the state yet.
	pending bool
}

// Until a state has been made, or not, the name of its note begins with making; what was
// started for it has ended after patience enough.
const (
	pendingPrefix  = "new-"
	pendingTimeout = time.Minute
)

// capture makes the record of a capture, of a state that is frozen for it where there is
// somebody to do so. The lock tells a sweep that the state is about to be named.
func (b *backend) capture(ctx context.Context, path string, r *record) error {
	if b.freezer == nil {
		return b.create(ctx, path, r)
	}
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if unix.Access(path, unix.F_OK) == nil {
		return because(errs.ErrExists, path, "there is a snapshot of that name")
	}
	if r.State, err = b.freezer.Name(r.Tree); err != nil {
		return err
	}
	name := uniqueName("")
	if err := b.writeNote(ctx, pendingPrefix+name, r.State); err != nil {
		return err
	}
	err = b.freezer.Freeze(ctx, r.Tree, r.State)
	err = errors.Join(err, os.Rename(b.notePath(pendingPrefix+name), b.notePath(name)))
	if err == nil {
		err = b.checkVisible(r)
	}
	if err == nil {
		err = b.create(ctx, path, r)
	}
	if err != nil {
		b.markPending()
	}
	return err
}

// note writes down what a state will be called, on stable storage, before there is anything.
func (b *backend) writeNote(ctx context.Context, name, state string) error {
	if err := fault.Point(ctx, "note the state"); err != nil {
		return err
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL | unix.O_NOFOLLOW
	path := b.notePath(name)
	f, err := os.OpenFile(path, flags, 0o600)
	if notExist(err) {
		if err = os.MkdirAll(b.dir+"/states", 0o700); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(state + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (b *backend) notePath(name string) string { return b.dir + "/states/" + name }

// look opens the directory of a state that was just made: where that cannot be, there is
// no use in it.
func (b *backend) checkVisible(r *record) error {
	path, err := b.freezer.Path(r.State)
	if err != nil {
		return err
	}
	dir, err := vfs.OpenDir(unix.AT_FDCWD, path)
	if notExist(err) { // where the kernel mounts it this process may not see, as in a container
		return because(errs.ErrNotSupported, path, "what was frozen cannot be seen here: "+err.Error(), "snapfs … --backend fusecow-overlay")
	}
	if err != nil {
		return err
	}
	return dir.Close()
}

// stir lets [backend.Pending] say that there is something to sweep. What cannot be written
// waits for what is removed next.
func (b *backend) markPending() {
	_ = os.WriteFile(b.dir+"/trash/"+uniqueName("state"), nil, 0o600)
}

// unnamed lists the notes of states that are not among those named. The caller holds the
// lock exclusively, so that nobody is about to name one.
func (b *backend) unusedStates(named map[string]bool) (dead []stateNote, err error) {
	if b.freezer == nil {
		return nil, nil
	}
	entries, err := os.ReadDir(b.dir + "/states")
	if notExist(err) {
		return nil, nil
	}
	for _, e := range entries {
		n := stateNote{path: b.notePath(e.Name())}
		info, err := e.Info()
		var text []byte
		if err == nil {
			text, err = os.ReadFile(n.path)
		}
		if notExist(err) { // another sweep was quicker
			continue
		}
		if err != nil {
			return nil, err
		}
		n.pending = strings.HasPrefix(e.Name(), pendingPrefix) && time.Since(info.ModTime()) < pendingTimeout
		if l := len(text); l > 0 && text[l-1] == '\n' {
			n.state = string(text[:l-1])
		}
		if !named[n.state] || n.state == "" {
			dead = append(dead, n)
		}
	}
	return dead, err
}

// thaw has states thawed and forgets them, but for those that somebody uses still.
func (b *backend) thaw(ctx context.Context, dead []stateNote) error {
	if len(dead) == 0 {
		return nil
	}
	var states []string
	for _, n := range dead {
		if n.state != "" {
			states = append(states, n.state)
		}
	}
	busy, err := b.freezer.Thaw(ctx, states)
	if err != nil {
		return err
	}
	waits := map[string]bool{}
	for _, state := range busy {
		waits[state] = true
	}
	for _, n := range dead {
		if err := fault.Point(ctx, "forget a state"); err != nil {
			return err
		}
		if waits[n.state] || n.pending {
			continue
		}
		if err := os.Remove(n.path); err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}
