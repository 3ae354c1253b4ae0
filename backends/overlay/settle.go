//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A volatile overlay leaves work/incompat/volatile in its work directory
// (Documentation/filesystems/overlayfs, "Volatile mount"): its syncs did
// nothing, and the kernel does not mount the layer again until somebody who
// has thought about it removes that. This is where that is thought about:
//
//   - The mark is there and of this boot: what was written is in the page
//     cache or on the disk. Nothing is lost. Settle writes it out and removes
//     the mark; sealing moves it to the frozen layer, as "unsettled".
//   - It is of an earlier boot: the machine may have gone down with pages
//     unwritten. No verb answers for such a layer; the error says where it is.
const kernelMark = "/work/incompat/volatile"

// boot identifies the time since the machine was started, as kernel.BootID
// does, at a third of the cost: every fork asks for it.
func (b *backend) boot() (string, error) {
	id, err := readFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSuffix(id, "\n"), err
}

// isVolatile reports whether the work directory of a layer has the kernel's
// mark. The directory it lies in has mode 000 and belongs to who mounted.
func (b *backend) isVolatile(layer string) (bool, error) {
	path := b.workPath(layer) + kernelMark
	for range 2 {
		_, err := vfs.Lstat(unix.AT_FDCWD, path)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case !errors.Is(err, fs.ErrPermission):
			return false, err
		}
		// The kernel itself does not look at the modes, all of which are 000.
		for _, dir := range []string{"/work", "/work/incompat", kernelMark} {
			if err := os.Chmod(b.workPath(layer)+dir, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	return false, because(errs.ErrDenied, path, "it cannot be looked at")
}

// whole says why a chain of frozen layers cannot be relied on, or nil.
func (b *backend) whole(layers []string, boot string) error {
	for _, layer := range layers {
		if unix.Access(b.treePath(layer), unix.F_OK) != nil {
			return because(errs.ErrCorrupt, b.treePath(layer), "the layer is gone")
		}
		note := b.layerPath(layer) + "/unsettled"
		since, err := os.Readlink(note)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if since != boot {
			return lost(b.treePath(layer), note)
		}
	}
	return nil
}

func lost(tree, note string) error {
	return because(errs.ErrCorrupt, tree,
		"the machine went down before this was safe on the disk; files in it may be empty or torn",
		"ls -lR "+tree, "rm -r "+note+" # to take it as it is")
}

// fit makes sure that a fork can be mounted, and remembers since which boot.
func (b *backend) fit(ctx context.Context, id snapshot.ForkID, r *record) error {
	boot, err := b.boot()
	if err != nil {
		return err
	}
	if err := b.whole(append([]string{r.upper}, r.layers...), boot); err != nil || r.boot == boot {
		return err
	}
	if _, err := b.unsettled(r, boot); err != nil {
		return err
	}
	return b.underLayer(ctx, id, func(now *record) error {
		unlock, err := b.lock(ctx, unix.LOCK_SH)
		if err != nil {
			return err
		}
		defer unlock()
		now.boot = boot
		*r = *now
		return b.replace(ctx, b.forkPath(id), now)
	})
}

// underLayer calls do with the record of a fork while nobody else seals or
// settles that fork. It tries again when the fork got another layer meanwhile.
func (b *backend) underLayer(ctx context.Context, id snapshot.ForkID, do func(*record) error) error {
	for {
		r, err := find(string(id), b.forkPath(id))
		if err != nil {
			return err
		}
		unlock, err := b.lockLayer(ctx, r.upper)
		if err != nil {
			return err
		}
		again, err := find(string(id), b.forkPath(id))
		if err == nil && again.upper == r.upper {
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

// unsettled reports whether the upper layer of a fork has the kernel's mark, and
// answers with an error when that is of another boot.
func (b *backend) unsettled(r *record, boot string) (bool, error) {
	marked, err := b.isVolatile(r.upper)
	if marked && r.boot != boot {
		err = lost(b.treePath(r.upper), b.workPath(r.upper)+"/work/incompat")
	}
	return marked, err
}

// Settle writes the whole filesystem of the layers out and then removes the
// marks that forbid to mount the fork again. It is for after the fork's last
// process, and costs what is unwritten; nothing where there is no mark.
// Errors: ErrNotFound, ErrCorrupt (the mark is of an earlier boot), ErrNoSpace.
func (b *backend) Settle(ctx context.Context, fork snapshot.ForkID) error {
	return fail("settling", string(fork), b.underLayer(ctx, fork, func(r *record) error {
		boot, err := b.boot()
		if err != nil {
			return err
		}
		marked, err := b.unsettled(r, boot)
		if err != nil {
			return err
		}
		all := append([]string{r.upper}, r.layers...)
		if err := b.whole(all, boot); err != nil {
			return err
		}
		notes := b.notes(all)
		if marked {
			notes = append(notes, b.workPath(r.upper)+kernelMark)
		}
		return b.writeOut(ctx, notes)
	}))
}

// notes lists those of our own marks that some of the layers have.
func (b *backend) notes(layers []string) (notes []string) {
	for _, layer := range layers {
		note := b.layerPath(layer) + "/unsettled"
		if _, err := os.Readlink(note); err == nil {
			notes = append(notes, note)
		}
	}
	return notes
}

// writeOut empties the page cache of the layers' filesystem onto the disk, and
// removes the notes that say it was not.
func (b *backend) writeOut(ctx context.Context, notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	if err := fault.Point(ctx, "write out"); err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "layers")
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return &fs.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	if err := fault.Point(ctx, "remove the marks"); err != nil {
		return err
	}
	for _, note := range notes {
		if err := os.RemoveAll(note); err != nil { // the kernel keeps a file in its own
			return err
		}
	}
	return nil
}
