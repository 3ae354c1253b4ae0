//go:build linux

package zfs

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/kernel"
)

// Receive keeps the contract of [snapshot.Receiver], by zfs-receive(8): into a dataset of
// its own among the forks, with a base as a clone of that. What breaks off stays, to be
// gone on with. Cost: some runs of zfs(8) beside that.
func (b *Backend) Receive(ctx context.Context, in io.Reader, id, base snapshot.ID, tree snapshot.Tree) (snapshot.Snapshot, error) {
	s, err := b.receive(ctx, in, string(id), string(base), tree)
	return s, fail("receiving", string(id), err)
}

func (b *Backend) receive(ctx context.Context, in io.Reader, id, base string, tree snapshot.Tree) (s snapshot.Snapshot, err error) {
	if err := valid(id); err != nil {
		return s, err
	}
	first, in, err := readBegin(in)
	if err != nil {
		return s, err
	}
	m, err := b.comingMark(id, base, tree)
	if err != nil {
		return s, err
	}
	r, err := b.settle()
	if err != nil {
		return s, err
	}
	defer r.Close()
	origin, err := r.originOf(ctx, base, first)
	if err != nil {
		return s, err
	}
	c := &coming{room: r, mark: m, origin: origin}
	if err := c.claim(ctx, first.resuming); err != nil {
		return s, err
	}
	defer kernel.Unlock(c.lock)
	err = c.fill(ctx, in)
	return b.snapshotOf(c.mark), err
}

// comingMark is the mark of what is to come: it lies beneath the dataset of the place's
// own tree, whichever tree it is said to be of.
func (b *Backend) comingMark(id, base string, tree snapshot.Tree) (mark, error) {
	src, err := findSource(b.tree)
	if err == nil {
		err = fits(src)
	}
	if err == nil {
		err = running(src.dataset)
	}
	u := unique()
	return mark{
		kind: snapshots, id: id, dataset: snapshotName(forkName(src.dataset, u), u), unique: u, source: src.dataset,
		tree: tree.Path, within: ".", base: base, taken: kernel.Now(), coming: true,
	}, err
}

// originOf finds the base that a stream is the difference to. ErrCorrupt: it is to another.
func (r room) originOf(ctx context.Context, base string, first begin) (origin string, err error) {
	var guid uint64
	if base != "" {
		m, err := r.find(snapshots, base)
		if err != nil {
			return "", err
		}
		all, err := guids(ctx, m.dataset)
		if err != nil {
			return "", err
		}
		origin, guid = m.dataset, all[m.dataset]
	}
	if first.from != guid {
		return "", corrupt("it is not the difference to this base")
	}
	return origin, nil
}

// A coming snapshot is being received. Nobody else receives it, as long as the
// directory of its entry is locked.
type coming struct {
	room
	mark   mark
	origin string // the dataset's name of the base, or ""
	rest   bool   // what came before is gone on with
	lock   *os.File
}

func (c *coming) entry() string { return snapshots + "/" + c.mark.id }

// claim finds what came before, where that is to be gone on with, or begins anew in its
// place. Errors: ErrExists; ErrBusy; ErrCorrupt: there is nothing to go on with.
func (c *coming) claim(ctx context.Context, resuming bool) error {
	err := c.hold()
	var old mark
	if err == nil {
		old, err = c.load(snapshots, c.mark.id)
	}
	switch err = absent(err); {
	case err == nil && !old.coming:
		err = &problem{kind: snapshot.ErrExists, why: "the id is taken"}
	case err == nil && resuming && old.base == c.mark.base && old.tree == c.mark.tree:
		c.mark, c.rest = old, true
		return nil
	case err != nil && !errors.Is(err, snapshot.ErrNotFound):
	case resuming:
		err = corrupt("it is the rest of a stream, of which the beginning is not here")
	default:
		return c.begin(ctx)
	}
	if c.lock != nil {
		kernel.Unlock(c.lock)
	}
	return err
}

// begin makes the entry anew. What came before is locked until it has gone.
func (c *coming) begin(ctx context.Context) error {
	if c.lock != nil {
		err := c.discard(c.entry())
		kernel.Unlock(c.lock)
		c.lock = nil
		if err != nil {
			return err
		}
	}
	if err := c.room.begin(ctx, c.mark); err != nil {
		return err
	}
	return c.hold()
}

// hold locks the directory of the entry. ErrBusy: another process has it, or has just begun
// anew and put another one in its place.
func (c *coming) hold() error {
	dir, err := kernel.OpenBeneath(c.fd(), c.entry(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	busy := &problem{kind: snapshot.ErrBusy, why: "another process receives it"}
	if err := kernel.Flock(dir, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = busy
		}
		return err
	}
	locked, err := dir.Stat()
	named, nerr := os.Lstat(c.Name() + "/" + c.entry())
	switch err = errors.Join(err, nerr); {
	case err == nil && os.SameFile(locked, named):
		c.lock = dir
		return nil
	case err == nil || errors.Is(err, os.ErrNotExist):
		err = busy
	}
	kernel.Unlock(dir)
	return err
}

// fill receives the stream, and says that it is whole. What is there of one that broke
// off stays, where ZFS can go on with it.
func (c *coming) fill(ctx context.Context, in io.Reader) error {
	from := &giver{r: in}
	err := c.stream(ctx, from)
	switch end := from.how(); {
	case end != nil && !errors.Is(end, io.EOF):
		err = end
	case end == nil && err == nil:
		err = corrupt("there is more than a stream in it")
	case end != nil && errors.Is(err, snapshot.ErrCorrupt):
		err = corrupt("it ends too early, or is damaged")
	}
	if err == nil {
		return c.finish(ctx)
	}
	if half, lerr := c.mark.half(context.WithoutCancel(ctx)); half != "" || lerr != nil {
		return errors.Join(err, lerr)
	}
	return errors.Join(err, c.giveUp(c.entry()))
}

// stream runs zfs-receive(8). A stream of one snapshot has no properties, and the dataset
// inherits those of its place, but for these; it is never mounted, its snapshot is.
func (c *coming) stream(ctx context.Context, in io.Reader) error {
	into, _ := c.mark.container()
	if err := c.settleHome(ctx, home(into.dataset)); err != nil {
		return err
	}
	if err := fault.Point(ctx, "receive the stream"); err != nil {
		return err
	}
	args := []string{"receive", "-s", "-u"}
	if c.origin != "" {
		args = append(args, "-o", "origin="+c.origin)
	}
	if !c.rest {
		args = append(args, "-o", marked(into.unique), "-o", "mountpoint=legacy", "-o", "canmount=off")
	}
	err := zfsStream(ctx, in, io.Discard, append(args, c.mark.dataset)...)
	if errors.Is(err, snapshot.ErrNotFound) { // somebody has destroyed it
		_ = unix.Unlinkat(c.fd(), homeRecord(home(into.dataset)), 0) // else the next fork will
	}
	return err
}

// finish makes what came a snapshot.
func (c *coming) finish(ctx context.Context) error {
	err := fault.Point(ctx, "hold the snapshot")
	if err == nil {
		_, err = zfs(ctx, "hold", tag, c.mark.dataset)
	}
	if err == nil {
		c.mark.coming = false
		err = c.replaceMark(ctx, c.mark)
	}
	if err == nil {
		err = c.reach(c.mark)
	}
	if err != nil {
		return errors.Join(err, c.giveUp(c.entry()))
	}
	return nil
}

// container is the dataset that a received snapshot is of, and whether it was received. The
// dataset has the same number, is nobody's fork, and goes with the snapshot: after
// those that have been forked from that, which are no older.
func (m mark) container() (mark, bool) {
	in := m
	in.kind, in.dataset, in.taken = forks, forkName(m.source, m.unique), m.taken.Add(-1)
	return in, m.kind == snapshots && m.dataset == snapshotName(in.dataset, m.unique)
}

// half is the token by which ZFS goes on with what came, or "" where nothing is there.
func (m mark) half(ctx context.Context) (string, error) {
	in, _ := m.container()
	out, err := zfs(ctx, "get", "-H", "-p", "-o", "value", "receive_resume_token", in.dataset)
	if errors.Is(err, snapshot.ErrNotFound) {
		return "", nil
	}
	return strings.TrimPrefix(strings.TrimSpace(out), "-"), err
}

// Resumable keeps the contract of [snapshot.Resumer].
func (b *Backend) Resumable(ctx context.Context, id snapshot.ID) (string, error) {
	half, err := b.resumable(ctx, string(id))
	return half, fail("looking for what came of", string(id), err)
}

func (b *Backend) resumable(ctx context.Context, id string) (string, error) {
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	m, err := r.load(snapshots, id)
	switch {
	case errors.Is(err, snapshot.ErrNotFound) || err == nil && !m.coming:
		return "", nil
	case err != nil:
		return "", err
	}
	if err := running(m.dataset); err != nil {
		return "", err
	}
	return m.half(ctx)
}

// A giver gives the last byte of a stream only when the stream has ended well, so that
// nobody takes for whole what somebody else is about to find damaged. It remembers how
// it ended.
type giver struct {
	r     io.Reader
	last  byte
	holds bool // there is a last byte
	end   error
	ended atomic.Pointer[error] // the same as end, for others
}

func (g *giver) Read(b []byte) (int, error) {
	for g.end == nil && len(b) > 0 {
		n, err := g.r.Read(b)
		if g.end = err; n == 0 {
			continue
		}
		last := b[n-1]
		if g.holds {
			copy(b[1:n], b[:n-1])
			b[0] = g.last
		} else {
			n--
		}
		if g.last, g.holds = last, true; n > 0 {
			return n, nil
		}
	}
	if g.holds && errors.Is(g.end, io.EOF) && len(b) > 0 {
		b[0], g.holds = g.last, false
		return 1, nil
	}
	g.ended.Store(&g.end)
	return 0, g.end
}

// how says how the stream ended; nil: it was not read to its end.
func (g *giver) how() error {
	if end := g.ended.Load(); end != nil {
		return *end
	}
	return nil
}
