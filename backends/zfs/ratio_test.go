//go:build vm

package zfs_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// The figures of this file are ratios of operations measured in turns, because absolute times
// depend on the machine.

// byHand is the highest cost of a clone, relative to a snapshot and a mounted clone by zfs(8): the
// backend starts no process, zfs(8) needs two. flat is the highest cost relative to a tree of a
// hundredth of the size.
const byHand, flat = 1.2, 1.3

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func timed(t *testing.T, do func() error) time.Duration {
	t.Helper()
	began := time.Now()
	must(t, do())
	return time.Since(began)
}

// grove returns a place whose tree has this number of files, on the disk.
func grove(t *testing.T, files int) (snapshot.Place, *zfs.Backend) {
	t.Helper()
	p := place(t)
	for i := range files {
		dir := p.Tree.Path + "/d" + strconv.Itoa(i/500)
		if i%500 == 0 {
			must(t, os.Mkdir(dir, 0o755))
		}
		f, err := os.OpenFile(dir+"/f"+strconv.Itoa(i), os.O_CREATE|os.O_WRONLY, 0o644)
		must(t, err)
		must(t, f.Close())
	}
	b := opened(t, p)
	grown(t, b, p)
	gone(t, b)
	return p, b
}

func clone(t *testing.T, b *zfs.Backend, p snapshot.Place, id string) func() error {
	return func() error {
		_, _, err := b.Clone(t.Context(), p.Tree, snapshot.ID(id), snapshot.ForkID(id))
		return err
	}
}

func TestTheCostOfACloneIsIndependentOfTheTreesSize(t *testing.T) {
	const few, many = 1000, 100_000
	small, sb := grove(t, few)
	large, lb := grove(t, many)
	dataset := of(t, small)
	sh(t, "create", "-o", "mountpoint="+treetest.Dir(t), dataset+"/hand")
	var hand, ours, larger []time.Duration
	for i := range 7 {
		id := fmt.Sprintf("r%d", i)
		hand = append(hand, timed(t, func() error {
			sh(t, "snapshot", dataset+"@hand"+id)
			sh(t, "clone", dataset+"@hand"+id, dataset+"/hand/"+id)
			return nil
		}))
		ours = append(ours, timed(t, clone(t, sb, small, id)))
		larger = append(larger, timed(t, clone(t, lb, large, id)))
	}
	h, o, l := median(hand), median(ours), median(larger)
	t.Logf("zfs snapshot and zfs clone by hand: %v; a clone of %d files: %v, %.2f times that; of %d files: %v, %.2f times",
		h, few, o, float64(o)/float64(h), many, l, float64(l)/float64(h))
	if float64(o) > byHand*float64(h) {
		t.Errorf("a clone costs %.2f times one by zfs(8)", float64(o)/float64(h))
	}
	if float64(l) > flat*float64(o) {
		t.Errorf("a clone of %d files costs %.2f times one of %d", many, float64(l)/float64(o), few)
	}
	for _, b := range []*zfs.Backend{sb, lb} {
		ids, forks, err := b.List(t.Context())
		must(t, err)
		for i := range forks {
			must(t, b.RemoveFork(t.Context(), forks[i]))
			must(t, b.Remove(t.Context(), ids[i]))
		}
		must(t, b.Sweep(t.Context()))
	}
	sh(t, "destroy", "-R", dataset+"/hand")
	for line := range strings.Lines(sh(t, "list", "-H", "-t", "snapshot", "-o", "name", dataset)) {
		sh(t, "destroy", strings.TrimSpace(line))
	}
}
