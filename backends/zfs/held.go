//go:build linux

package zfs

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/zfs"
)

var _ snapshot.Meter = (*Backend)(nil)

// MeasureExclusive returns the disk space that the destruction of the snapshots ids would free, for [snapshot.Meter], as
// ZFS itself computes it: with metadata, and after compression. A snapshot with a clone frees nothing. The last
// snapshots of a removed fork hold the fork's dataset as well, which a sweep destroys with them. Cost: a process, and an
// ioctl for each snapshot.
func (b *Backend) MeasureExclusive(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	held, err := b.measureHeld(ctx, ids)
	return held, fail("measuring", "", err)
}

func (b *Backend) measureHeld(ctx context.Context, ids []snapshot.ID) ([]snapshot.Bytes, error) {
	held := make([]snapshot.Bytes, len(ids))
	r, err := b.enter()
	if errors.Is(err, os.ErrNotExist) {
		return held, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	order, datasets, err := r.removalOrder(ids)
	if err != nil || len(datasets) == 0 {
		return held, err
	}
	live, err := r.liveForks()
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-H", "-p", "-t", "filesystem,snapshot", "-d", "1", "-s", "createtxg", "-o", "name,used,clones,userrefs"}
	text, err := zfsCmd(ctx, append(args, datasets...)...)
	if err != nil {
		return nil, err
	}
	rows, err := parseHeldRows(text)
	if err != nil {
		return nil, err
	}
	for _, dataset := range datasets {
		l := heldDataset{gone: strings.Contains(dataset, "/"+homeName+"/") && !live[dataset], order: order}
		for _, row := range rows {
			if row.name == dataset {
				l.used = row.used
			} else if of, _, ok := strings.Cut(row.name, "@"); ok && of == dataset {
				l.snapshots = append(l.snapshots, row)
			}
		}
		if err := l.addHeld(held, func(first, last string) (int64, error) { return wouldFree(ctx, first, last) }); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// removalOrder returns, by its name, when each ZFS snapshot is removed: its index in ids, or -1 if it is in the trash.
// datasets are those of the snapshots ids. Snapshots that do not exist are left out.
func (r dataDir) removalOrder(ids []snapshot.ID) (order map[string]int, datasets []string, err error) {
	order = map[string]int{}
	known := map[string]bool{}
	for i, id := range ids {
		m, err := r.find(snapshots, string(id))
		if errors.Is(err, errs.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		order[m.dataset] = i
		if of, _, _ := strings.Cut(m.dataset, "@"); !known[of] {
			known[of] = true
			datasets = append(datasets, of)
		}
	}
	removed, err := r.list(trash)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	for _, name := range removed {
		text, err := r.readFile(trash + "/" + name + "/" + markName)
		if err != nil {
			continue // an entry that another process makes or deletes
		}
		if m, err := parseMark(text); err == nil && isSnapshot(m.dataset) {
			order[m.dataset] = -1
		}
	}
	return order, datasets, nil
}

// liveForks returns the names of the datasets of all forks that are not removed.
func (r dataDir) liveForks() (map[string]bool, error) {
	live := map[string]bool{}
	list, err := r.list(forks)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, id := range list {
		if m, err := r.load(forks, id); err == nil {
			live[m.dataset] = true
		}
	}
	return live, nil
}

// A heldRow is a line of "zfs list": a dataset, or a snapshot of it.
type heldRow struct {
	name string
	used int64
	busy bool // a clone or another program's hold needs the snapshot
}

// parseHeldRows parses the output of "zfs list -H -p -o name,used,clones,userrefs".
func parseHeldRows(text string) (rows []heldRow, err error) {
	for row := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		if len(f) != 4 {
			return nil, corrupt("the output of zfs list has a line without four columns: " + row)
		}
		h := heldRow{name: f[0], busy: f[2] != "-" && f[2] != ""}
		if h.used, err = strconv.ParseInt(f[1], 10, 64); err != nil {
			return nil, corrupt("the property used is no number: " + row)
		}
		if f[3] != "-" {
			holds, err := strconv.ParseInt(f[3], 10, 64)
			if err != nil {
				return nil, corrupt("the property userrefs is no number: " + row)
			}
			h.busy = h.busy || holds > 1 // one is snapfs's own
		}
		rows = append(rows, h)
	}
	return rows, nil
}

// A heldDataset is a dataset with its snapshots, the oldest first.
type heldDataset struct {
	snapshots []heldRow
	order     map[string]int // when a snapshot is removed, see [dataDir.removalOrder]
	gone      bool           // its fork is removed, so that the dataset is destroyed with its last snapshot
	used      int64          // the disk space of the dataset with all its snapshots
}

// addHeld adds to held, for each i, what remains to be freed in the dataset after the removal of the snapshots up to i.
// free returns what the destruction of the snapshots from first to last would free.
func (l *heldDataset) addHeld(held []snapshot.Bytes, free func(first, last string) (int64, error)) error {
	all, err := l.freed(len(held), free)
	if err != nil {
		return err
	}
	before, removed := int64(0), -1
	for i := range held {
		if n := l.removed(i); n != removed { // otherwise nothing was removed since
			if before, err = l.freed(i, free); err != nil {
				return err
			}
			removed = n
		}
		held[i] += snapshot.Bytes(max(0, all-before))
	}
	return nil
}

// removed returns how many snapshots are removed before the snapshot i of the removal order.
func (l *heldDataset) removed(i int) (n int) {
	for _, s := range l.snapshots {
		if l.goes(s, i) {
			n++
		}
	}
	return n
}

// goes reports whether the snapshot s is removed before the snapshot i of the removal order.
func (l *heldDataset) goes(s heldRow, i int) bool {
	at, ok := l.order[s.name]
	return ok && at < i && !s.busy
}

// freed returns the space that is free after the removal of the snapshots before i in the removal order: the sum of what
// each run of neighbouring snapshots frees.
func (l *heldDataset) freed(i int, free func(first, last string) (int64, error)) (sum int64, err error) {
	if l.gone && l.removed(i) == len(l.snapshots) {
		return l.used, nil
	}
	for from := 0; from < len(l.snapshots); from++ {
		to := from
		for to < len(l.snapshots) && l.goes(l.snapshots[to], i) {
			to++
		}
		if to == from {
			continue
		}
		n, err := free(l.snapshots[from].name, l.snapshots[to-1].name)
		if err != nil {
			return 0, err
		}
		sum, from = sum+n, to
	}
	return sum, nil
}

// wouldFree returns the disk space that the destruction of the snapshots from first to last of one dataset would free.
func wouldFree(ctx context.Context, first, last string) (int64, error) {
	if said, done := callKernel(ctx, zfs.Space, last, zfs.Pair{Name: "firstsnap", Value: first}); done {
		if n, ok := zfs.Number(said, "used"); ok {
			return int64(n), nil
		}
	}
	_, short, _ := strings.Cut(last, "@")
	text, err := zfsCmd(ctx, "destroy", "-n", "-v", "-p", first+"%"+short)
	if err != nil {
		return 0, err
	}
	return parseReclaim(text)
}

// parseReclaim returns the number in the last line of the output of "zfs destroy -n -v -p".
func parseReclaim(text string) (int64, error) {
	for row := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(row, "reclaim\t"); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				return n, nil
			}
		}
	}
	return 0, corrupt("the output of zfs destroy has no number of bytes to reclaim: " + text)
}
