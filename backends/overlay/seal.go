//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/undo"
)

// chainLimits are limits for the number of layers in a chain. Each layer costs half a microsecond at
// every look-up of a name that is not cached.
type chainLimits struct {
	mergeAt int // Sweep merges such a chain, and later forks use the merged layer
	max     int // Seal merges such a chain first
}

// chainLimitsNow returns the limits for this kernel. Linux accepts 500 layers; before Linux 6.5 it wants
// all of them in one mount option of 255 bytes, enough for thirteen descriptors.
func chainLimitsNow() chainLimits {
	if hostinfo.Before(6, 5) {
		return chainLimits{mergeAt: 5, max: 10}
	}
	return chainLimits{mergeAt: 16, max: 64}
}

// Seal freezes the fork's upper layer and gives the fork a new one (Idle), or copies the layer
// (InUse). If no Sweep has merged a long chain, Seal merges it first.
func (b *backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error) {
	s := record{taken: now()}
	err := checkID(ctx, string(id))
	if err == nil {
		err = b.withForkLocked(ctx, fork, func(r *record) error {
			s.tree = r.tree
			if use == snapshot.InUse {
				return b.sealInUse(ctx, fork, r, id, &s)
			}
			return b.sealIdle(ctx, fork, r, id, &s)
		})
	}
	if err != nil {
		return snapshot.Snapshot{}, fail("sealing", string(fork), err)
	}
	return b.snapshotOf(id, &s), nil
}

// maySeal does the checks of both ways to seal, and merges the chain if it is full.
func (b *backend) maySeal(ctx context.Context, r *record, id snapshot.ID) (marked bool, boot string, err error) {
	if _, err := os.Lstat(b.snapshotPath(id)); err == nil {
		return false, "", because(errs.ErrExists, b.snapshotPath(id), "a snapshot of this name exists")
	}
	if boot, err = b.boot(); err != nil {
		return false, "", err
	}
	if marked, err = b.isUnsynced(r, boot); err != nil {
		return marked, boot, err
	}
	if err = b.checkLayers(r.layers, boot); err != nil {
		return marked, boot, err
	}
	if len(b.shorten(r.layers)) >= b.chains.max {
		err = b.compact(ctx, b.shorten(r.layers))
	}
	return marked, boot, err
}

// sealIdle seals in three steps, each of which leaves a valid state: the fork gets a new upper
// above its old one; the snapshot exists; the snapshot is the fork's base.
func (b *backend) sealIdle(ctx context.Context, fork snapshot.ForkID, r *record, id snapshot.ID, s *record) (err error) {
	marked, boot, err := b.maySeal(ctx, r, id)
	if err != nil {
		return err
	}
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if marked {
		note := b.layerPath(r.upper) + "/unsettled"
		if err := os.Symlink(boot, note); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	next := *r
	next.boot = boot
	next.layers = append([]string{r.upper}, b.shorten(r.layers)...)
	s.layers = next.layers
	if next.upper, err = b.newLayer(ctx, string(fork), b.treePath(r.upper)); err != nil {
		return err
	}
	if err = b.inheritLimit(r.upper, next.upper); err == nil {
		err = b.replace(ctx, b.forkPath(fork), &next)
	}
	if err != nil {
		b.toTrash(b.layerPath(next.upper))
		return err
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	back.Push("restore the old layer", func() error {
		err := b.replace(context.WithoutCancel(ctx), b.forkPath(fork), r)
		if err == nil {
			b.toTrash(b.layerPath(next.upper))
		}
		return err // the fork keeps the new layer: its content is the same
	})
	if err := b.announce(ctx, fork, &next, id, s, &back); err != nil {
		return err
	}
	back.Release()
	b.dropWork(r.upper)
	return nil
}

// announce writes the snapshot's record and then makes the snapshot the base of the fork.
func (b *backend) announce(ctx context.Context, fork snapshot.ForkID, next *record, id snapshot.ID, s *record, back *undo.Stack) error {
	if err := b.create(ctx, b.snapshotPath(id), s); err != nil {
		return err
	}
	back.Push("remove the snapshot", func() error { return b.retire(b.snapshotPath(id)) })
	next.base, next.taken = string(id), s.taken
	return b.replace(ctx, b.forkPath(fork), next)
}

// sealInUse copies the upper layer, and leaves the fork's layers as they are.
func (b *backend) sealInUse(ctx context.Context, fork snapshot.ForkID, r *record, id snapshot.ID, s *record) error {
	if _, _, err := b.maySeal(ctx, r, id); err != nil {
		return err
	}
	return b.mergeInto(ctx, string(fork), []string{r.upper}, func(layer string) (err error) {
		s.layers = append([]string{layer}, b.shorten(r.layers)...)
		next := *r
		var back undo.Stack
		defer back.UndoInto(&err)
		if err := b.announce(ctx, fork, &next, id, s, &back); err != nil {
			return err
		}
		back.Release()
		return nil
	})
}

// compact makes a layer that replaces a whole chain. Existing records keep the chain, because their
// views may be mounted; new records use the merged layer. Cost: in proportion to the content of the
// chain.
func (b *backend) compact(ctx context.Context, chain []string) error {
	return b.mergeInto(ctx, "merged", chain, func(layer string) error {
		err := os.Symlink("../"+layer, b.layerPath(chain[0])+"/merged")
		if errors.Is(err, fs.ErrExist) {
			return because(errs.ErrBusy, b.layerPath(chain[0]), "another process has merged the layer")
		}
		return err
	})
}

// mergeInto copies a chain of layers into a new layer and calls then, under the lock, once the new
// layer is in place. A lock on the new layer's directory protects it from Sweep meanwhile. After an
// error, also of then, the layer is gone.
func (b *backend) mergeInto(ctx context.Context, prefix string, chain []string, then func(layer string) error) error {
	layer := uniqueName(prefix + "-")
	home := b.dir + "/tmp/" + layer
	release, err := b.makeLocked(ctx, home)
	if err != nil {
		return err
	}
	defer release()
	at := home
	defer func() {
		if at != "" {
			b.toTrash(at)
		}
	}()
	var trees []string
	for _, name := range chain {
		trees = append(trees, b.treePath(name))
	}
	if err := b.merge(ctx, trees, home+b.inner()+"/"+treeDir); err != nil {
		return err
	}
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if i := slices.IndexFunc(trees, gone); i >= 0 { // the copy may be incomplete
		return because(errs.ErrNotFound, trees[i], "the layer was removed during the copy")
	}
	if err := fault.Point(ctx, "put the layer in place"); err != nil {
		return err
	}
	if err := os.Rename(home, b.layerPath(layer)); err != nil {
		return err
	}
	at = b.layerPath(layer)
	if err := then(layer); err != nil {
		return err
	}
	at = ""
	return nil
}

func gone(path string) bool { return unix.Access(path, unix.F_OK) != nil }

// makeLocked makes the directory home, with a tree in it, and locks it.
func (b *backend) makeLocked(ctx context.Context, home string) (release func(), err error) {
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := fault.Point(ctx, "make the copy's directory"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(home)
	if err == nil {
		err = flock(ctx, int(dir.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = os.MkdirAll(home+b.inner()+"/"+treeDir, 0o700)
	}
	if err != nil {
		b.toTrash(home)
		return nil, err
	}
	return func() { dir.Close() }, nil
}
