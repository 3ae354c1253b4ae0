//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/backends/overlay/diff"
	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/undo"
	"golang.org/x/sys/unix"
)

// chainLimits returns two lengths of a chain of overlayfs layers: from mergeAt on Sweep merges the chain into
// one layer, and at max Seal merges it first. Each layer costs half a microsecond at every uncached lookup.
// Linux accepts 500 layers; before Linux 6.5 all of them must fit in one mount option of 255 bytes, enough
// for thirteen. A sweep calls it for each snapshot, so it asks for the kernel's version once.
var chainLimits = sync.OnceValues(func() (mergeAt, max int) {
	if hostinfo.Before(6, 5) {
		return 5, 10
	}
	return 16, 64
})

// Seal makes the snapshot id of a fork, for [snapshot.Backend]: it freezes the fork's upper layer and gives
// the fork a new one (use Idle), or copies the layer (InUse). If the fork has many layers that no Sweep has
// merged, Seal merges them first.
func (b *backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, use snapshot.Use) (snapshot.Snapshot, error) {
	s := store.Record{Taken: now()}
	err := store.CheckID(ctx, string(id))
	if err == nil {
		err = b.withForkLocked(ctx, fork, func(r *store.Record) error {
			s.Tree, s.Whole = r.Tree, r.Whole
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

// maySeal returns an error if the fork with the record r cannot be sealed as the snapshot id, and merges its
// layers if it has as many as a mount may have. marked reports that the kernel marked the upper layer as not
// synced (a volatile mount), and boot is the id of this boot.
func (b *backend) maySeal(ctx context.Context, r *store.Record, id snapshot.ID) (marked bool, boot string, err error) {
	if _, err := os.Lstat(b.store.SnapshotPath(id)); err == nil {
		return false, "", store.Refuse(errs.ErrExists, b.store.SnapshotPath(id), "a snapshot of this name exists")
	}
	if boot, err = proc.BootID(); err != nil {
		return false, "", err
	}
	if marked, err = b.isUnsynced(r, boot); err != nil {
		return marked, boot, err
	}
	if err = b.checkLayers(r.Layers, boot); err != nil {
		return marked, boot, err
	}
	if _, most := b.store.ChainLimits(); len(b.store.Shorten(r.Layers)) >= most {
		err = b.compact(ctx, b.store.Shorten(r.Layers))
	}
	return marked, boot, err
}

// sealIdle makes the snapshot id of a fork that is not in use, in three steps, each of which leaves a valid
// state: the fork gets a new upper above its old one; the snapshot gets its record s; the snapshot becomes
// the fork's base.
func (b *backend) sealIdle(ctx context.Context, fork snapshot.ForkID, r *store.Record, id snapshot.ID, s *store.Record) (err error) {
	marked, boot, err := b.maySeal(ctx, r, id)
	if err != nil {
		return err
	}
	unlock, err := b.store.Lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if marked {
		note := b.store.LayerPath(r.Upper) + "/unsettled"
		if err := os.Symlink(boot, note); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	next := *r
	next.Boot = boot
	next.Layers = append([]string{r.Upper}, b.store.Shorten(r.Layers)...)
	s.Layers = next.Layers
	if next.Upper, err = b.store.NewLayer(ctx, string(fork), b.store.TreePath(r.Upper)); err != nil {
		return err
	}
	if err = b.projects.InheritLimit(r.Upper, next.Upper); err == nil {
		err = b.store.Replace(ctx, b.store.ForkPath(fork), &next)
	}
	if err != nil {
		b.store.ToTrash(b.store.LayerPath(next.Upper))
		return err
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	back.Push("restore the old layer", func() error {
		err := b.store.Replace(context.WithoutCancel(ctx), b.store.ForkPath(fork), r)
		if err == nil {
			b.store.ToTrash(b.store.LayerPath(next.Upper))
		}
		return err // the fork keeps the new layer: its content is the same
	})
	if err := b.announce(ctx, fork, &next, id, s, &back); err != nil {
		return err
	}
	back.Release()
	b.projects.DropWork(r.Upper)
	return nil
}

// announce writes the record s of the snapshot id and then makes the snapshot the base of the fork, whose
// record is next. back undoes the steps before if that fails.
func (b *backend) announce(ctx context.Context, fork snapshot.ForkID, next *store.Record, id snapshot.ID, s *store.Record, back *undo.Stack) error {
	if err := b.store.Create(ctx, b.store.SnapshotPath(id), s); err != nil {
		return err
	}
	back.Push("remove the snapshot", func() error { return b.store.Retire(b.store.SnapshotPath(id)) })
	next.Base, next.Taken = string(id), s.Taken
	return b.store.Replace(ctx, b.store.ForkPath(fork), next)
}

// sealInUse makes the snapshot id of a fork that processes use, by copying the fork's upper layer into a new
// layer of the snapshot. The fork keeps its layers.
func (b *backend) sealInUse(ctx context.Context, fork snapshot.ForkID, r *store.Record, id snapshot.ID, s *store.Record) error {
	if _, _, err := b.maySeal(ctx, r, id); err != nil {
		return err
	}
	return b.mergeInto(ctx, string(fork), []string{r.Upper}, func(layer string) (err error) {
		s.Layers = append([]string{layer}, b.store.Shorten(r.Layers)...)
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

// compact makes one layer that replaces chain, a list of layers, to make lookups faster. Snapshots and forks
// that exist still use the old layers, because they may be mounted; new ones use the merged layer. Cost: in
// proportion to the content of the layers.
func (b *backend) compact(ctx context.Context, chain []string) error {
	return b.mergeInto(ctx, "merged", chain, func(layer string) error {
		err := os.Symlink("../"+layer, b.store.LayerPath(chain[0])+"/merged")
		if errors.Is(err, fs.ErrExist) {
			return store.Refuse(errs.ErrBusy, b.store.LayerPath(chain[0]), "another process has merged the layer")
		}
		return err
	})
}

// mergeInto copies the layers of chain into one new layer, whose name begins with prefix. It then calls then,
// which makes records name the new layer, under the store's lock, so that no sweep removes layers meanwhile.
// A lock on the new layer's directory protects it from Sweep during the copy. After an error, also of then,
// the new layer is gone.
func (b *backend) mergeInto(ctx context.Context, prefix string, chain []string, then func(layer string) error) error {
	layer := store.UniqueName(prefix + "-")
	home := b.store.Dir + "/tmp/" + layer
	release, err := b.store.MakeLocked(ctx, home)
	if err != nil {
		return err
	}
	defer release()
	at := home
	defer func() {
		if at != "" {
			b.store.ToTrash(at)
		}
	}()
	var trees []string
	for _, name := range chain {
		trees = append(trees, b.store.TreePath(name))
	}
	if err := diff.Merge(ctx, b.mode(), trees, home+b.store.Inner()+"/"+store.TreeDir); err != nil {
		return err
	}
	unlock, err := b.store.Lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if i := slices.IndexFunc(trees, store.IsGone); i >= 0 { // the copy may be incomplete
		return store.Refuse(errs.ErrNotFound, trees[i], "the layer was removed during the copy")
	}
	if err := fault.Point(ctx, "put the layer in place"); err != nil {
		return err
	}
	if err := os.Rename(home, b.store.LayerPath(layer)); err != nil {
		return err
	}
	at = b.store.LayerPath(layer)
	if err := then(layer); err != nil {
		return err
	}
	at = ""
	return nil
}
