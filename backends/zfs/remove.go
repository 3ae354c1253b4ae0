//go:build linux

package zfs

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
)

// List keeps the contract of [snapshot.Backend].
func (b *Backend) List(context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fail("listing", "", err)
	}
	defer r.Close()
	ids, err := names[snapshot.ID](r, snapshots)
	if err != nil {
		return nil, nil, fail("listing", "", err)
	}
	grown, err := names[snapshot.ForkID](r, forks)
	return ids, grown, fail("listing", "", err)
}

func names[T ~string](r room, kind string) ([]T, error) {
	all, err := r.list(kind)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var ids []T
	for _, name := range all {
		if _, err := r.load(kind, name); err == nil || errors.Is(err, snapshot.ErrCorrupt) {
			ids = append(ids, T(name))
		}
	}
	return ids, err
}

// Remove keeps the contract of [snapshot.Backend]: a rename. [Backend.Sweep]
// destroys the snapshot, or ZFS does when the last clone of it goes.
func (b *Backend) Remove(ctx context.Context, id snapshot.ID) error {
	return fail("removing", string(id), b.remove(ctx, snapshots, string(id)))
}

// RemoveFork keeps the contract of [snapshot.Backend]: the fork is unmounted
// and renamed; Sweep destroys it. ErrBusy: a process has something in it open.
func (b *Backend) RemoveFork(ctx context.Context, id snapshot.ForkID) error {
	return fail("removing", string(id), b.remove(ctx, forks, string(id)))
}

func (b *Backend) remove(ctx context.Context, kind, id string) error {
	r, err := b.enter()
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	defer r.Close()
	m, err := r.load(kind, id)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return nil
	case err == nil:
		if err := running(m.dataset); err != nil {
			return err
		}
	case !errors.Is(err, snapshot.ErrCorrupt):
		return err
	}
	entry := kind + "/" + id
	if err := fault.Point(ctx, "unmount it"); err != nil {
		return err
	}
	if err := r.leave(entry, kind == forks); err != nil && !errors.Is(err, snapshot.ErrNotFound) {
		return err
	}
	if err := fault.Point(ctx, "move it to the trash"); err != nil {
		return err
	}
	return r.discard(entry)
}

// Pending keeps the contract of [snapshot.Pender]. What a sweep has had to leave
// does not count, until something else is removed.
func (b *Backend) Pending() bool {
	r, err := b.enter()
	if err != nil {
		return false
	}
	defer r.Close()
	names, err := r.list(trash)
	return err != nil || slices.ContainsFunc(names, func(name string) bool { return !beingBorn(name) && !strings.HasPrefix(name, later) })
}

// A dead one is an entry in the trash.
type dead struct {
	entry string
	mark  mark
}

// Sweep keeps the contract of [snapshot.Sweeper]. A fork of which a snapshot is
// kept stays until that has gone, and so does what a mount namespace still has
// mounted, and what lies in a pool that is not imported. A hundred cost a run of zfs(8), and two more where snapshots are among them.
func (b *Backend) Sweep(ctx context.Context) error {
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fail("sweeping", "", err)
	}
	defer r.Close()
	return fail("sweeping", "", r.sweep(ctx))
}

func (r room) sweep(ctx context.Context) error {
	list, err := r.dead(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(list, together) {
		if err := r.sweepPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// together is how many datasets go in one transaction: they are an argument each
// of one program, and the transaction is everybody's who writes to the pool.
const together = 100

// sweepPart destroys some of what is in the trash. What is not there any more, or
// is not ours, is done with; what something still needs is left to a later sweep.
func (r room) sweepPart(ctx context.Context, list []dead) error {
	held, err := own(ctx, list)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "release the snapshots"); err != nil {
		return err
	}
	if err := release(ctx, held); err != nil {
		return err
	}
	if err := fault.Point(ctx, "destroy the datasets"); err != nil {
		return err
	}
	busy, err := destroy(ctx, list)
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := fault.Point(ctx, "forget a dataset"); err != nil {
			return err
		}
		done := r.erase
		if busy[d.mark.dataset] {
			done = r.postpone
		}
		if err := done(trash + "/" + d.entry); err != nil {
			return err
		}
	}
	return nil
}

// postpone leaves an entry to a later sweep, which something else brings about.
func (r room) postpone(entry string) error {
	name := strings.TrimPrefix(entry, trash+"/")
	if strings.HasPrefix(name, later) {
		return nil
	}
	err := r.rename(entry, trash+"/"+later+name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // another sweep was quicker
	}
	return err
}

// dead lists what is in the trash, unmounted: the snapshots first, and of the
// forks the youngest, for one may have been grown from another's snapshot.
func (r room) dead(ctx context.Context) ([]dead, error) {
	names, err := r.list(trash)
	if errors.Is(err, os.ErrNotExist) { // the room is just being made
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []dead
	for _, name := range names {
		if beingBorn(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		of, err := r.deadOf(name)
		if err != nil {
			return nil, err
		}
		list = append(list, of...)
	}
	slices.SortFunc(list, func(a, b dead) int {
		if c := cmp.Compare(b.mark.kind, a.mark.kind); c != 0 { // snapshots before forks
			return c
		}
		return b.mark.taken.Compare(a.mark.taken)
	})
	return list, nil
}

// deadOf unmounts an entry of the trash, and lists what goes with it: nothing, where that is away, or there is none.
func (r room) deadOf(name string) ([]dead, error) {
	entry := trash + "/" + name
	text, err := r.readFile(entry + "/" + markName)
	m := mark{}
	if err == nil {
		m, err = parseMark(text)
	}
	if err == nil {
		if err := running(m.dataset); err != nil {
			return nil, err
		}
		if imported(m.dataset) != nil { // it goes when the pool is back
			return nil, r.postpone(entry)
		}
	}
	switch err := r.leave(entry, false); {
	case errors.Is(err, snapshot.ErrNotFound): // another sweep was quicker
		return nil, nil
	case err != nil:
		return nil, err
	}
	if errors.Is(err, snapshot.ErrCorrupt) && !strings.HasPrefix(name, newborn) {
		return nil, &problem{kind: snapshot.ErrCorrupt, path: r.Name() + "/" + entry, why: err.Error()}
	}
	if err != nil { // never whole, or swept by another: it names nothing
		return nil, r.erase(entry)
	}
	return []dead{{name, m}}, nil
}

// own lists the snapshots that are there with our mark on them.
func own(ctx context.Context, list []dead) (names []string, err error) {
	args := []string{"get", "-H", "-p", "-s", "local", "-o", "name,value", property}
	want := map[string]string{}
	for _, d := range list {
		if isSnapshot(d.mark.dataset) {
			args = append(args, d.mark.dataset)
			want[d.mark.dataset] = d.mark.unique
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	// It says what it knows of those that are there, and fails for the others.
	out, err := zfs(ctx, args...)
	if err != nil && !errors.Is(err, snapshot.ErrNotFound) {
		return nil, err
	}
	for row := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		if value != "" && want[name] == value {
			names = append(names, name)
		}
	}
	return names, nil
}

// release lets go of snapshots, of as many as are there and held.
func release(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := zfs(ctx, append([]string{"release", tag}, names...)...)
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil
	}
	return err
}

// erase takes an entry away, which holds nothing any more. It removes no
// directory that has anything but the mark in it.
func (r room) erase(entry string) error {
	if err := unix.Unlinkat(r.fd(), entry, 0); err == nil || err == unix.ENOENT {
		return nil
	}
	for _, step := range []struct {
		path string
		flag int
	}{{entry + "/" + treeName, unix.AT_REMOVEDIR}, {entry + "/" + markName, 0}, {entry, unix.AT_REMOVEDIR}} {
		if err := unix.Unlinkat(r.fd(), step.path, step.flag); err != nil && err != unix.ENOENT {
			return &os.PathError{Op: "remove", Path: step.path, Err: err}
		}
	}
	return nil
}
