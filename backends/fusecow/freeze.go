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

// A Freezer makes frozen states of directory trees, as by snapshots of the filesystem. Each is readable in a
// directory of its own that nobody can change. Errors are those of [snapshot.Backend.Capture].
type Freezer interface {
	// Holds returns nil if the tree at a path can be frozen, or the reason why not. It creates nothing.
	Holds(ctx context.Context, tree string) error
	// Name returns a name for the next frozen state of a tree: one that no state has had, and none gets
	// later. It creates nothing.
	Name(tree string) (state string, err error)
	// Freeze creates a frozen state of the tree as it is now, under the name state, which Name has returned.
	// After an error or a kill, Thaw removes what exists of the state.
	Freeze(ctx context.Context, tree, state string) error
	// Path returns the directory in which this process can read the tree as the frozen state of that name
	// holds it.
	Path(state string) (string, error)
	// Thaw deletes frozen states for good, complete or not. It returns those that are still in use, which
	// have to wait. It ignores states that do not exist or are not ours. Thaw can be repeated.
	Thaw(ctx context.Context, states []string) (busy []string, err error)
}

// A stateNote is a file in states/ that names a frozen state of a [Freezer], so that a sweep can find and
// delete the state. The name is "" if the process that wrote the note was killed before it created the state.
type stateNote struct {
	path, state string
	// pending is set if the process that wrote the note was killed, while a command that it
	// started may still create the state.
	pending bool
}

// While a frozen state is being created, the name of its note in states/ begins with pendingPrefix. Commands
// started for the state have ended after pendingTimeout.
const (
	pendingPrefix  = "new-"
	pendingTimeout = time.Minute
)

// capture creates the record r of a snapshot at path. With a Freezer it first creates a frozen state of the
// tree, and holds the lock so that a sweep does not remove the state before the record names it.
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
		return because(errs.ErrExists, path, "a snapshot of that name exists")
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

// writeNote creates the file name in states/ with the name of a frozen state, on stable storage, before the
// state is created. With that note a sweep finds the state after a kill.
func (b *backend) writeNote(ctx context.Context, name, state string) error {
	if err := fault.Point(ctx, "write the state's note"); err != nil {
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

// checkVisible returns an error if this process cannot open the directory of the frozen state that r names,
// since such a state is useless.
func (b *backend) checkVisible(r *record) error {
	path, err := b.freezer.Path(r.State)
	if err != nil {
		return err
	}
	dir, err := vfs.OpenDir(unix.AT_FDCWD, path)
	if notExist(err) { // the kernel mounts it where this process cannot see it, for example outside a container
		return because(errs.ErrNotSupported, path, "the frozen state is not visible to this process: "+err.Error(),
			"snapfs … --backend fusecow-overlay")
	}
	if err != nil {
		return err
	}
	return dir.Close()
}

// markPending leaves a file in the trash after a frozen state became unused, so that [backend.Pending]
// reports work for a sweep. If that fails, the next removal does the same.
func (b *backend) markPending() {
	_ = os.WriteFile(b.dir+"/trash/"+uniqueName("state"), nil, 0o600)
}

// unusedStates returns the notes of frozen states that no record uses; named holds the names of the states
// that a record uses. The caller holds the lock exclusively, so no process is about to use another.
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
		if notExist(err) { // another sweep was faster
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

// thaw deletes the frozen states that the notes in dead name, and removes these notes. It leaves states that
// are in use, with their notes, for the next sweep.
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
