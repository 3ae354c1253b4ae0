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

// List returns the ids of all snapshots and forks that are in the state directory, for [snapshot.Backend].
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

func names[T ~string](r dataDir, kind string) ([]T, error) {
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

// Remove removes the snapshot id, for [snapshot.Backend]: it renames the snapshot's directory into the trash.
// [Backend.Sweep] destroys the ZFS snapshot, or ZFS does when its last clone is destroyed.
func (b *Backend) Remove(ctx context.Context, id snapshot.ID) error {
	return fail("removing", string(id), b.remove(ctx, snapshots, string(id)))
}

// RemoveFork removes the fork id, for [snapshot.Backend]: it unmounts the fork and renames the fork's
// directory into the trash. [Backend.Sweep] destroys the dataset later. Errors: ErrBusy (a process has a file
// in it open).
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
		if err := checkRunning(m.dataset); err != nil {
			return err
		}
	case !errors.Is(err, errs.ErrCorrupt):
		return err
	}
	entry := kind + "/" + id
	if err := fault.Point(ctx, "unmount the dataset"); err != nil {
		return err
	}
	if err := r.unmount(entry, kind == forks); err != nil && !errors.Is(err, errs.ErrNotFound) {
		return err
	}
	if err := fault.Point(ctx, "move the entry to the trash"); err != nil {
		return err
	}
	return r.discard(entry)
}

// Pending reports whether Sweep has work, for [snapshot.Backend]. Removed snapshots and forks that an earlier
// sweep had to leave do not count until another one is removed.
func (b *Backend) Pending() bool {
	r, err := b.enter()
	if err != nil {
		return false
	}
	defer r.Close()
	names, err := r.list(trash)
	return err != nil || slices.ContainsFunc(names, func(name string) bool { return !inProgress(name) && !strings.HasPrefix(name, later) })
}

// A trashEntry is a removed snapshot or fork in the trash, whose dataset Sweep has to destroy.
type trashEntry struct {
	entry string
	mark  mark
	// young is set if a call of a killed process may still make the dataset. undone is set if the maker itself
	// gave up the entry, so that no such call is running.
	young, undone bool
}

// Sweep destroys the datasets of removed snapshots and forks, for [snapshot.Backend]. It leaves a fork that
// has a snapshot, a dataset that a mount namespace still has mounted, and those of pools that are not
// imported. One with an error is left and reported, and does not stop the others. Cost for each hundred: one
// run of zfs(8), and two more if there are snapshots among them.
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

// sweep destroys the datasets of the removed snapshots and forks, one ZFS pool after another, and deletes
// their directories in the trash. Those that are still in use it leaves to a later sweep, without an error.
// Other failures do not stop it, unless ctx has ended; it returns them all.
func (r dataDir) sweep(ctx context.Context) error {
	list, trouble := r.listTrash(ctx)
	pools := map[string][]trashEntry{}
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
			if p := (*errs.Error)(nil); errors.As(err, &p) && ctx.Err() == nil { // the error will persist
				for _, d := range part {
					err = errors.Join(err, r.postpone(trash+"/"+d.entry))
				}
			}
			trouble = errors.Join(trouble, fail("sweeping", "", err))
		}
	}
	return trouble
}

// together is the largest number of datasets that one transaction destroys; each transaction delays all
// writers of the pool.
const together = 100

// sweepPart destroys the datasets of some removed snapshots and forks of one pool, those in list, and deletes
// their directories in the trash. If a dataset does not exist or is not marked as snapfs's, only the
// directory is deleted. If a dataset is still needed, both are left to a later sweep.
func (r dataDir) sweepPart(ctx context.Context, pool string, list []trashEntry) error {
	held, err := existing(ctx, list)
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

// postpone renames entry, the directory of a removed snapshot or fork in the trash that a sweep could not
// destroy yet, to a name with the prefix later, so that [Backend.Pending] does not count it.
func (r dataDir) postpone(entry string) error {
	name := strings.TrimPrefix(entry, trash+"/")
	if strings.HasPrefix(name, later) {
		return nil
	}
	err := r.rename(entry, trash+"/"+later+name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // another sweep has handled it
	}
	return err
}

// listTrash unmounts and lists the removed snapshots and forks in the trash: the snapshots first, and then
// the youngest forks first, because a fork may be a clone of another fork's snapshot.
func (r dataDir) listTrash(ctx context.Context) ([]trashEntry, error) {
	names, err := r.list(trash)
	if errors.Is(err, os.ErrNotExist) { // the directory is just being created
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []trashEntry
	var trouble error
	for _, name := range names {
		if inProgress(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return list, errors.Join(trouble, err)
		}
		of, err := r.readTrashEntry(name)
		trouble = errors.Join(trouble, fail("sweeping", "", err))
		list = append(list, of...)
	}
	slices.SortFunc(list, func(a, b trashEntry) int {
		if c := cmp.Compare(b.mark.kind, a.mark.kind); c != 0 { // snapshots before forks
			return c
		}
		return b.mark.taken.Compare(a.mark.taken)
	})
	return list, trouble
}

// readTrashEntry unmounts the removed snapshot or fork name in the trash and returns it, or nothing if there
// is nothing to destroy now. The error is the reason why it is left to a later sweep.
func (r dataDir) readTrashEntry(name string) ([]trashEntry, error) {
	entry := trash + "/" + name
	text, err := r.readFile(entry + "/" + markName)
	if errors.Is(err, unix.ENOTDIR) { // a new mark of a killed process, which names no dataset
		return nil, r.erase(entry)
	}
	m := mark{}
	if err == nil {
		m, err = parseMark(text)
	}
	if err == nil {
		if err := checkRunning(m.dataset); err != nil {
			return nil, errors.Join(err, r.postpone(entry))
		}
		if checkImported(m.dataset) != nil { // the entry stays until the pool is imported
			return nil, r.postpone(entry)
		}
	}
	switch err := r.unmount(entry, false); {
	case errors.Is(err, errs.ErrNotFound): // another sweep has handled it
		return nil, nil
	case err != nil:
		return nil, errors.Join(err, r.postpone(entry))
	}
	if errors.Is(err, errs.ErrCorrupt) && !strings.HasPrefix(name, incomplete) {
		return nil, errors.Join(&errs.Error{Kind: errs.ErrCorrupt, Path: r.Name() + "/" + entry, Err: errors.New(err.Error())}, r.postpone(entry))
	}
	if err != nil { // incomplete, or swept by another process: it names no dataset
		return nil, r.erase(entry)
	}
	return []trashEntry{{entry: name, mark: m, young: r.young(entry), undone: strings.HasPrefix(strings.TrimPrefix(name, later), undone)}}, nil
}

// young reports whether the maker of a snapshot or fork, whose directory is entry, may have been killed so
// recently that its calls may still take effect: zfs(8) is killed with its parent, but not before the kernel
// has answered.
func (r dataDir) young(entry string) bool {
	st, err := vfs.Lstat(r.fd(), entry+"/"+markName)
	return err != nil || time.Since(st.MTime.Time()) < makerTimeout
}

// existing returns the names of those ZFS snapshots in list that exist and have the user property of snapfs
// with the value that the list says.
func existing(ctx context.Context, list []trashEntry) (names []string, err error) {
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
	// zfs(8) prints the existing snapshots, and fails for the others.
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

// release removes snapfs's hold, which prevents destruction, from each ZFS snapshot that exists and has one.
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

// erase deletes entry, the directory of a removed snapshot or fork whose dataset is gone. It deletes no
// directory that holds more than the mark, the text file that describes the snapshot or fork.
func (r dataDir) erase(entry string) error {
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
