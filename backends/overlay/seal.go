//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/undo"
	"golang.org/x/sys/unix"
)

// chains are how many layers one may have. Each costs half a microsecond at every
// look-up of a name not yet cached.
type chains struct {
	long int // Sweep merges it, and later forks use the merged layer
	full int // Seal merges it first
}

// chainsNow are those of this kernel, which takes 500 layers; before Linux 6.5 it wants all of
// them in one option of 255 bytes, which has room for thirteen descriptors.
func chainsNow() chains {
	if hostinfo.Before(6, 5) {
		return chains{long: 5, full: 10}
	}
	return chains{long: 16, full: 64}
}

// Seal freezes the fork's layer and gives the fork a new one (Idle), or copies
// the layer (InUse). Every so often, where Sweep never ran, it first merges.
func (b *backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error) {
	s := record{taken: now()}
	err := usable(ctx, string(id))
	if err == nil {
		err = b.underLayer(ctx, fork, func(r *record) error {
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

// maySeal checks what both ways of sealing ask for, and makes room in the chain.
func (b *backend) maySeal(ctx context.Context, r *record, id snapshot.ID) (marked bool, boot string, err error) {
	if _, err := os.Lstat(b.snapshotPath(id)); err == nil {
		return false, "", because(errs.ErrExists, b.snapshotPath(id), "there is a snapshot of that name")
	}
	if boot, err = b.boot(); err != nil {
		return false, "", err
	}
	if marked, err = b.unsettled(r, boot); err != nil {
		return marked, boot, err
	}
	if err = b.whole(r.layers, boot); err != nil {
		return marked, boot, err
	}
	if len(b.shorten(r.layers)) >= b.chains.full {
		err = b.compact(ctx, b.shorten(r.layers))
	}
	return marked, boot, err
}

// sealIdle makes three steps, each of which leaves a state that is right: the
// fork goes on with a new layer above its old one; the snapshot exists; the
// fork's base is the snapshot.
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
	if err = b.succeed(r.upper, next.upper); err == nil {
		err = b.replace(ctx, b.forkPath(fork), &next)
	}
	if err != nil {
		b.discard(b.layerPath(next.upper))
		return err
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	back.Push("take the old layer back", func() error {
		err := b.replace(context.WithoutCancel(ctx), b.forkPath(fork), r)
		if err == nil {
			b.discard(b.layerPath(next.upper))
		}
		return err // the fork goes on with the new layer: its content is the same
	})
	if err := b.announce(ctx, fork, &next, id, s, &back); err != nil {
		return err
	}
	back.Release()
	b.dropWork(r.upper)
	return nil
}

// announce makes the snapshot and then makes it the base of the fork.
func (b *backend) announce(ctx context.Context, fork snapshot.ForkID, next *record, id snapshot.ID, s *record, back *undo.Stack) error {
	if err := b.create(ctx, b.snapshotPath(id), s); err != nil {
		return err
	}
	back.Push("remove the snapshot", func() error { return b.retire(b.snapshotPath(id)) })
	next.base, next.taken = string(id), s.taken
	return b.replace(ctx, b.forkPath(fork), next)
}

// sealInUse leaves the fork's layers as they are.
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

// compact makes one layer that stands for a whole chain. Records that name the
// chain stay as they are, for their views may be mounted; new ones use the
// merged layer. Cost: in proportion to what is in the chain.
func (b *backend) compact(ctx context.Context, chain []string) error {
	return b.mergeInto(ctx, "merged", chain, func(layer string) error {
		err := os.Symlink("../"+layer, b.layerPath(chain[0])+"/merged")
		if errors.Is(err, fs.ErrExist) {
			return because(errs.ErrBusy, b.layerPath(chain[0]), "somebody else has merged it")
		}
		return err
	})
}

// mergeInto copies a chain of layers into a new layer, and calls then when that
// is in its place, under the lock. While it is copied it is kept from Sweep by
// a lock on its directory. After an error, of then too, the layer is gone.
func (b *backend) mergeInto(ctx context.Context, prefix string, chain []string, then func(layer string) error) error {
	layer := fresh(prefix + "-")
	home := b.dir + "/tmp/" + layer
	release, err := b.hold(ctx, home)
	if err != nil {
		return err
	}
	defer release()
	at := home
	defer func() {
		if at != "" {
			b.discard(at)
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
	if i := slices.IndexFunc(trees, gone); i >= 0 { // then it may be incomplete
		return because(errs.ErrNotFound, trees[i], "the layer was removed while it was copied")
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

// hold makes the directory home with a tree in it, and locks it.
func (b *backend) hold(ctx context.Context, home string) (release func(), err error) {
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := fault.Point(ctx, "make room for the copy"); err != nil {
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
		b.discard(home)
		return nil, err
	}
	return func() { dir.Close() }, nil
}
