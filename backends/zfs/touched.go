//go:build linux

package zfs

import (
	"context"
	"errors"
	"iter"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// Touched keeps the contract of [snapshot.Toucher], from zfs-diff(8). It writes out
// what is buffered for the fork first. Cost: a process, a transaction group, and some
// microseconds for each changed file. Where a file of several names was changed all
// of the tree is touched, since zfs(8) tells one name.
func (b *Backend) Touched(ctx context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Touch, error] {
	return b.compare(string(fork), func(r room, emit func(snapshot.Touch) bool) error {
		x, err := r.side(snapshots, string(base))
		if err != nil {
			return err
		}
		y, err := r.side(forks, string(fork))
		if err != nil {
			return err
		}
		return between(ctx, x, y, emit)
	})
}

// TouchedBetween keeps the contract of [snapshot.PairToucher]. ErrNotSupported: one is
// not older than the other in one line, or the fork that the younger was sealed from
// has been removed.
func (b *Backend) TouchedBetween(ctx context.Context, s, t snapshot.ID) iter.Seq2[snapshot.Touch, error] {
	return b.compare(string(t), func(r room, emit func(snapshot.Touch) bool) error {
		x, err := r.side(snapshots, string(s))
		if err != nil {
			return err
		}
		y, err := r.side(snapshots, string(t))
		if err != nil {
			return err
		}
		if y.mark.taken.Before(x.mark.taken) {
			x, y = y, x
		}
		return between(ctx, x, y, emit)
	})
}

// Drifted keeps the contract of [snapshot.Drifter], as Touched does.
func (b *Backend) Drifted(ctx context.Context, id snapshot.ID) iter.Seq2[snapshot.Touch, error] {
	return b.compare(string(id), func(r room, emit func(snapshot.Touch) bool) error {
		x, err := r.side(snapshots, string(id))
		if err != nil {
			return err
		}
		src, err := findSource(x.mark.tree)
		if err != nil {
			return absent(err)
		}
		if src != (source{x.mark.source, x.mark.within}) || isFork(x.mark.dataset) {
			return noDiff("the tree is not on the dataset that was captured")
		}
		y := side{mark: x.mark, tree: x.mark.tree}
		y.mark.dataset = src.dataset
		return between(ctx, x, y, emit)
	})
}

func isFork(dataset string) bool { return strings.Contains(dataset, "/"+homeName+"/") }

func noDiff(why string) error { return &problem{kind: snapshot.ErrNotSupported, why: why} }

func (b *Backend) compare(id string, with func(room, func(snapshot.Touch) bool) error) iter.Seq2[snapshot.Touch, error] {
	return func(yield func(snapshot.Touch, error) bool) {
		r, err := b.enter()
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", id, absent(err)))
			return
		}
		defer r.Close()
		if err := with(r, func(t snapshot.Touch) bool { return yield(t, nil) }); err != nil {
			yield(snapshot.Touch{}, fail("comparing", id, err))
		}
	}
}

// A side is one of the two trees that are compared, mounted.
type side struct {
	mark mark
	tree string // where the tree is
}

func (r room) side(kind, id string) (side, error) {
	m, err := r.find(kind, id)
	if err == nil {
		err = r.reach(m)
	}
	return side{m, path.Join(r.Name(), kind, id, treeName, m.within)}, err
}

// between tells what zfs-diff(8) finds from the snapshot x to y, which is younger.
func between(ctx context.Context, x, y side, emit func(snapshot.Touch) bool) error {
	if x.mark.dataset == y.mark.dataset {
		return nil
	}
	if !isSnapshot(y.mark.dataset) {
		if err := flush(y.tree); err != nil {
			return absent(err)
		}
	}
	dataset, _, _ := strings.Cut(y.mark.dataset, "@")
	at, err := mountOf(dataset)
	if err != nil {
		return err
	}
	out, err := zfs(ctx, "diff", "-H", "-F", x.mark.dataset, y.mark.dataset)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		touches, err := touchesOf(strings.TrimSuffix(line, "\n"), at, y.mark.within)
		if err != nil {
			return err
		}
		for _, t := range touches {
			if !t.Tree && (manyNames(x.tree, t.Path) || manyNames(y.tree, t.Path)) {
				t = snapshot.Touch{Path: ".", Tree: true}
			}
			if !emit(t) {
				return nil
			}
		}
	}
	return nil
}

// mountOf is the mount point that zfs(8) takes for a dataset's: the first of them.
func mountOf(dataset string) (string, error) {
	mounts, err := kernel.Mounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.Source == dataset {
			return m.Path, nil
		}
	}
	return "", noDiff(dataset + " is not mounted in this mount namespace")
}

// touchesOf reads a line of zfs-diff(8) about the dataset that is mounted at a path:
// a sign, a type, and a path, or for the sign R two, of which the tree is what lies
// within. After the path there may be by how much the number of names has changed.
func touchesOf(line, mounted, within string) ([]snapshot.Touch, error) {
	field := strings.Split(line, "\t")
	if len(field) < 3 || len(field[0]) != 1 || field[0] == "R" && len(field) < 4 {
		return nil, noDiff("zfs diff says what is not known: " + line)
	}
	sign, paths := field[0], field[2:3]
	if sign == "R" {
		paths = field[2:4]
	}
	var all []snapshot.Touch
	for _, p := range paths {
		p, ok := plainPath(p)
		if rest, cut := strings.CutPrefix(p, mounted); ok && cut {
			p = path.Clean("./" + rest)
		} else {
			return nil, noDiff("zfs diff names what does not lie in the tree: " + line)
		}
		p, _, attribute := strings.Cut(p, "/<xattrdir>")
		whole := !attribute && field[1] == "/" && sign == "R"
		switch {
		case within == "." || p == within:
		case strings.HasPrefix(within, p+"/") && sign != "M":
			p, whole = within, true // a directory above the tree is another
		case !strings.HasPrefix(p, within+"/"):
			continue
		}
		all = append(all, snapshot.Touch{Path: relative(within, p), Tree: whole})
	}
	return all, nil
}

func relative(within, p string) string {
	if p == within {
		return "."
	}
	if within == "." {
		return p
	}
	return strings.TrimPrefix(p, within+"/")
}

// plainPath undoes how zfs-diff(8) writes what is not printable, or a backslash: as
// \0ooo (stream_bytes of lib/libzfs/libzfs_diff.c).
func plainPath(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if len(s) < i+5 {
			return "", false
		}
		n := 0
		for _, c := range []byte(s[i+1 : i+5]) {
			if c < '0' || c > '7' {
				return "", false
			}
			n = n<<3 | int(c-'0')
		}
		if n > 0xff {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 4
	}
	return b.String(), true
}

// manyNames reports whether what is there under a path has other names, or nobody
// can tell. Directories have one.
func manyNames(tree, p string) bool {
	st, err := kernel.Lstat(unix.AT_FDCWD, path.Join(tree, p))
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false
	case err != nil:
		return true
	}
	return !st.IsDir() && st.Nlink > 1
}
