package engine

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/internal/kernel"
)

// driftBudget bounds the walk that counts what has moved in a real workspace:
// about 100,000 warm files.
const driftBudget = 200 * time.Millisecond

// changeTimes lists the change times of all that lies in a directory, on its
// filesystem, or nil when that takes too long.
func changeTimes(ctx context.Context, dir, skip string) []time.Time {
	ctx, cancel := context.WithTimeout(ctx, driftBudget)
	defer cancel()
	w := driftWalk{ctx: ctx, skip: skip, times: []time.Time{}}
	root, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	st, err := kernel.Lstat(int(root.Fd()), "")
	if err != nil {
		return nil
	}
	w.dev = st.Dev
	if !w.walk(int(root.Fd()), dir) {
		return nil
	}
	return w.times
}

type driftWalk struct {
	ctx   context.Context
	skip  string
	dev   uint64
	times []time.Time
}

// walk reports whether it saw everything in time.
func (w *driftWalk) walk(dirfd int, path string) bool {
	entries, err := kernel.Entries(dirfd)
	if err != nil || w.ctx.Err() != nil {
		return err != nil && w.ctx.Err() == nil // what cannot be listed has not been changed by its reader
	}
	for _, e := range entries {
		st, err := kernel.Lstat(dirfd, e.Name)
		if err != nil {
			continue // gone meanwhile
		}
		w.times = append(w.times, st.CTime.Time())
		if !st.IsDir() || st.Dev != w.dev || filepath.Join(path, e.Name) == w.skip {
			continue
		}
		sub, err := kernel.OpenDir(dirfd, e.Name)
		if err != nil {
			continue
		}
		ok := w.walk(int(sub.Fd()), filepath.Join(path, e.Name))
		sub.Close()
		if !ok {
			return false
		}
	}
	return true
}
