//go:build linux

package zfs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
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
		if _, err := r.load(kind, name); err == nil || errors.Is(err, errs.ErrCorrupt) {
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
	case errors.Is(err, errs.ErrNotFound):
		return nil
	case err == nil:
		if err := running(m.dataset); err != nil {
			return err
		}
	case !errors.Is(err, errs.ErrCorrupt):
		return err
	}
	entry := kind + "/" + id
	if err := fault.Point(ctx, "unmount it"); err != nil {
		return err
	}
	if err := r.leave(entry, kind == forks); err != nil && !errors.Is(err, errs.ErrNotFound) {
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
	// young: what it names may be about to be made; not so where undone, for its maker was there to say so.
	young, undone bool
}

// Sweep keeps the contract of [snapshot.Sweeper]. A fork of which a snapshot is
// kept stays until that has gone, and so does what a mount namespace still has
// mounted, and what lies in a pool that is not imported. What is in trouble stays too, and is told of: the
// rest goes all the same. A hundred cost a run of zfs(8), and two more where snapshots are among them.
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

// sweep does what can be done, pool by pool, and says what it had to leave and why.
func (r room) sweep(ctx context.Context) error {
	list, trouble := r.dead(ctx)
	pools := map[string][]dead{}
	for _, d := range list {
		pool := poolOf(d.mark.dataset)
		pools[pool] = append(pools[pool], d)
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for part := range slices.Chunk(pools[pool], together) {
			if err := ctx.Err(); err != nil {
				return errors.Join(trouble, err)
			}
			err := r.sweepPart(ctx, pool, part)
			if p := (*problem)(nil); errors.As(err, &p) && ctx.Err() == nil { // it will not go away by itself
				for _, d := range part {
					err = errors.Join(err, r.postpone(trash+"/"+d.entry))
				}
			}
			trouble = errors.Join(trouble, fail("sweeping", "", err))
		}
	}
	return trouble
}

// together is how many datasets go in one transaction: they are an argument each
// of one program, and the transaction is everybody's who writes to the pool.
const together = 100

// sweepPart destroys some of what is in the trash, of one pool. What is not there any more, or
// is not ours, is done with; what something still needs is left to a later sweep.
func (r room) sweepPart(ctx context.Context, pool string, list []dead) error {
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
	said, err := destroy(ctx, pool, list)
	if err != nil {
		return err
	}
	var trouble error
	for _, d := range list {
		if err := fault.Point(ctx, "forget a dataset"); err != nil {
			return err
		}
		stays, why := said.stays(d)
		done := r.erase
		if stays || why != nil {
			done = r.postpone
		}
		trouble = errors.Join(trouble, fail("sweeping", "", why))
		if err := done(trash + "/" + d.entry); err != nil {
			return errors.Join(trouble, err)
		}
	}
	return trouble
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
	var trouble error
	for _, name := range names {
		if beingBorn(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return list, errors.Join(trouble, err)
		}
		of, err := r.deadOf(name)
		trouble = errors.Join(trouble, fail("sweeping", "", err))
		list = append(list, of...)
	}
	slices.SortFunc(list, func(a, b dead) int {
		if c := cmp.Compare(b.mark.kind, a.mark.kind); c != 0 { // snapshots before forks
			return c
		}
		return b.mark.taken.Compare(a.mark.taken)
	})
	return list, trouble
}

// deadOf unmounts an entry of the trash, and lists what goes with it: nothing, where that is away, or there is none. What
// cannot be done now is left to a later sweep, with the reason as the error.
func (r room) deadOf(name string) ([]dead, error) {
	entry := trash + "/" + name
	text, err := r.readFile(entry + "/" + markName)
	if errors.Is(err, unix.ENOTDIR) { // a mark that was about to replace another: it names nothing
		return nil, r.erase(entry)
	}
	m := mark{}
	if err == nil {
		m, err = parseMark(text)
	}
	if err == nil {
		if err := running(m.dataset); err != nil {
			return nil, errors.Join(err, r.postpone(entry))
		}
		if imported(m.dataset) != nil { // it goes when the pool is back
			return nil, r.postpone(entry)
		}
	}
	switch err := r.leave(entry, false); {
	case errors.Is(err, errs.ErrNotFound): // another sweep was quicker
		return nil, nil
	case err != nil:
		return nil, errors.Join(err, r.postpone(entry))
	}
	if errors.Is(err, errs.ErrCorrupt) && !strings.HasPrefix(name, newborn) {
		return nil, errors.Join(&problem{kind: errs.ErrCorrupt, path: r.Name() + "/" + entry, why: err.Error()}, r.postpone(entry))
	}
	if err != nil { // never whole, or swept by another: it names nothing
		return nil, r.erase(entry)
	}
	return []dead{{entry: name, mark: m, young: r.young(entry), undone: strings.HasPrefix(strings.TrimPrefix(name, later), undone)}}, nil
}

// young reports whether the maker of an entry may have been killed so lately that what it
// asked for may yet come about: zfs(8) ends with who runs it, but not before the kernel has answered.
func (r room) young(entry string) bool {
	st, err := vfs.Lstat(r.fd(), entry+"/"+markName)
	return err != nil || time.Since(st.MTime.Time()) < enough
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
	out, err := zfsCmd(ctx, args...)
	if err != nil && !errors.Is(err, errs.ErrNotFound) {
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
	_, err := zfsCmd(ctx, append([]string{"release", tag}, names...)...)
	if errors.Is(err, errs.ErrNotFound) {
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
