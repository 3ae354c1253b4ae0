//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/bench/tree"
)

// driftChecks returns the checks of how fast drift is detected. That matters because every command on a
// sandbox reports how far the real tree has changed since its base.
func (r *referee) driftChecks() []check {
	return []check{
		{name: "drift of one file in the largest tree, on btrfs, by the engine", limit: 20, unit: "ms", measure: r.drifts(&r.btrfsRoot, false)},
		{name: "drift of one file in the largest tree, by walking it, to `find -cnewer`", limit: 1, held: 1.3, unit: "×", measure: r.drifts(&r.overlay, true)},
	}
}

// drifts returns the measuring function of a check: the time that Engine.DriftOf takes in the largest tree of
// the setting s, in milliseconds, or with asRatio relative to find(1).
func (r *referee) drifts(s *setting, asRatio bool) measure {
	files := r.largest()
	return r.inSandbox(s, files, func(ctx context.Context, name string, p *processes) (float64, string, error) {
		reference, err := r.edited(ctx, p.dir)
		if err != nil {
			return 0, "", err
		}
		found := 0
		drift := timing.Subject{Name: "drift", Do: timing.Timing(func(ctx context.Context) error {
			d, err := r.e.Compare.DriftOf(ctx, name)
			found = len(d.Paths)
			return err
		})}
		pace := r.many()
		pace.Rounds = min(pace.Rounds, 15)
		m, err := timing.Medians(ctx, pace, drift, p.other("find", "find", p.dir, "-cnewer", reference))
		if err == nil && found == 0 {
			err = errors.New("no drift was found where a file was changed")
		}
		if err != nil {
			return 0, "", err
		}
		value := float64(m[0]) / float64(time.Millisecond)
		if asRatio {
			value = timing.Ratio(m[0], m[1])
		}
		return value, fmt.Sprintf("drift %s, find %s, %d files", timing.Ms(m[0]), timing.Ms(m[1]), files), nil
	})
}

// edited changes the times of one real file of the tree dir, so that there is drift to detect. It returns the
// path of an empty file that is older, which find -cnewer compares with.
func (r *referee) edited(ctx context.Context, dir string) (reference string, err error) {
	reference = filepath.Join(r.dir, "before-drift")
	if err := os.WriteFile(reference, nil, 0o644); err != nil {
		return "", err
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(20 * time.Millisecond): // another tick of the filesystem's clock
	}
	return reference, os.Chtimes(filepath.Join(dir, tree.FileOf(0)), time.Time{}, time.Now())
}
