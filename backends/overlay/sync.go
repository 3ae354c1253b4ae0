//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// checkLayers returns an error if the content of these frozen layers may be incomplete, because the machine
// crashed before they were synced. boot is the id of this boot.
func (b *backend) checkLayers(layers []string, boot string) error {
	for _, layer := range layers {
		if unix.Access(b.store.TreePath(layer), unix.F_OK) != nil {
			return store.Refuse(errs.ErrCorrupt, b.store.TreePath(layer), "the layer is missing")
		}
		note := b.store.LayerPath(layer) + "/unsettled"
		since, err := os.Readlink(note)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if since != boot {
			return unsyncedError(b.store.TreePath(layer), note)
		}
	}
	return nil
}

func unsyncedError(tree, note string) error {
	return store.Refuse(errs.ErrCorrupt, tree,
		"the machine crashed before this layer was safe on the disk; files in it may be empty or torn",
		"ls -lR "+errs.Quoted(tree), "rm -r "+errs.Quoted(note)+" # to accept it as it is")
}

// prepareMount checks that the fork id can be mounted, and records this boot as the last one that may have
// mounted it: after a crash, unsynced writes of that boot may be lost.
func (b *backend) prepareMount(ctx context.Context, id snapshot.ForkID, r *store.Record) error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	if err := b.checkLayers(append([]string{r.Upper}, r.Layers...), boot); err != nil || r.Boot == boot {
		return err
	}
	if _, err := b.isUnsynced(r, boot); err != nil {
		return err
	}
	return b.withForkLocked(ctx, id, func(now *store.Record) error {
		unlock, err := b.store.Lock(ctx, unix.LOCK_SH)
		if err != nil {
			return err
		}
		defer unlock()
		now.Boot = boot
		*r = *now
		return b.store.Replace(ctx, b.store.ForkPath(id), now)
	})
}

// withForkLocked calls do with the record of the fork id, while it holds a lock against other seals and syncs
// of that fork: the lock of the fork's upper layer. If the fork gets another upper layer meanwhile, it locks
// that instead.
func (b *backend) withForkLocked(ctx context.Context, id snapshot.ForkID, do func(*store.Record) error) error {
	for {
		r, err := store.Find(string(id), b.store.ForkPath(id))
		if err != nil {
			return err
		}
		unlock, err := b.store.LockLayer(ctx, r.Upper)
		if err != nil {
			return err
		}
		again, err := store.Find(string(id), b.store.ForkPath(id))
		if err == nil && again.Upper == r.Upper {
			err = do(&again)
			unlock()
			return err
		}
		unlock()
		if err != nil {
			return err
		}
	}
}

// isUnsynced reports whether the kernel has marked the upper layer of a fork as written without syncs
// ([store.KernelMark]). A mark of another boot than boot is an error: writes may be lost.
func (b *backend) isUnsynced(r *store.Record, boot string) (bool, error) {
	marked, err := b.store.IsVolatile(r.Upper)
	if marked && r.Boot != boot {
		err = unsyncedError(b.store.TreePath(r.Upper), b.store.WorkPath(r.Upper)+"/work/incompat")
	}
	return marked, err
}

// Sync puts a fork's changes on stable storage, for [snapshot.Syncer]: it syncs the filesystem of the layers
// and then removes the kernel's marks of a volatile mount, which prevent another mount of the fork. The
// engine calls it after the fork's last process has ended. Cost: writing all unsaved data of the filesystem; of a fork
// that has changed nothing, the sync of one directory; nothing without a mark. Errors: ErrNotFound, ErrCorrupt (the
// mark is of an earlier boot), ErrNoSpace.
func (b *backend) Sync(ctx context.Context, fork snapshot.ForkID) error {
	return fail("settling", string(fork), b.withForkLocked(ctx, fork, func(r *store.Record) error {
		boot, err := proc.BootID()
		if err != nil {
			return err
		}
		marked, err := b.isUnsynced(r, boot)
		if err != nil {
			return err
		}
		all := append([]string{r.Upper}, r.Layers...)
		if err := b.checkLayers(all, boot); err != nil {
			return err
		}
		notes := b.unsyncedNotes(all)
		if !marked {
			return b.syncAndUnmark(ctx, notes, b.syncLayers)
		}
		sync := b.syncLayers
		if tree := b.store.TreePath(r.Upper); len(notes) == 0 && isEmpty(tree) {
			sync = func(ctx context.Context) error { return syncEmpty(ctx, tree) }
		}
		return b.syncAndUnmark(ctx, append(notes, b.store.WorkPath(r.Upper)+store.KernelMark), sync)
	}))
}

// unsyncedNotes lists the paths of the files "unsettled" in these layers, which say that a layer was sealed
// without a sync.
func (b *backend) unsyncedNotes(layers []string) (notes []string) {
	for _, layer := range layers {
		note := b.store.LayerPath(layer) + "/unsettled"
		if _, err := os.Readlink(note); err == nil {
			notes = append(notes, note)
		}
	}
	return notes
}

// syncAndUnmark calls sync, which syncs layers, and then removes the files notes, which say that layers are not
// synced, and the kernel's marks of unsynced layers ([store.KernelMark]), which prevent further mounts. It does
// nothing without notes.
func (b *backend) syncAndUnmark(ctx context.Context, notes []string, sync func(context.Context) error) error {
	if len(notes) == 0 {
		return nil
	}
	if err := sync(ctx); err != nil {
		return err
	}
	if err := fault.Point(ctx, "remove the marks"); err != nil {
		return err
	}
	for _, note := range notes {
		if err := os.RemoveAll(note); err != nil { // the kernel's mark contains a file
			return err
		}
	}
	return nil
}

// syncLayers syncs the filesystem of the layers.
func (b *backend) syncLayers(ctx context.Context) error {
	if err := fault.Point(ctx, "sync the layers"); err != nil {
		return err
	}
	dir := filepath.Join(b.store.Dir, "layers")
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return &fs.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return nil
}

// isEmpty reports whether the upper layer's directory tree has no entries: its fork shows only the lower layers, and no
// data of it needs to be written. It returns false for a directory that it cannot read.
func isEmpty(tree string) bool {
	entries, err := os.ReadDir(tree)
	return err == nil && len(entries) == 0
}

// syncEmpty syncs the directory tree, the root of an upper layer without entries, so that no entry that was removed
// from it is back after a power loss. Unlike a sync of the whole filesystem, syncEmpty does not write the data of other
// programs.
func syncEmpty(ctx context.Context, tree string) error {
	if err := fault.Point(ctx, "sync the empty layer"); err != nil {
		return err
	}
	return vfs.SyncDir(tree)
}
