//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/bench/tree"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// startChecks returns the checks of how long whole `snapfs run` processes take from start to end.
func (r *referee) startChecks() []check {
	return []check{
		{name: "`snapfs version` to an empty Go program", limit: 2, held: 2.6, unit: "×", measure: r.version},
		{name: "`snapfs run -- true` on overlay to bwrap --unshare-all", limit: 1, held: 4, unit: "×", measure: r.inTree(&r.overlay, r.runToBwrap)},
		{
			name: "`snapfs run -- true` in a changed btrfs workspace, beyond the same on overlay, to a bare snapshot", limit: 1.1, held: 5, unit: "×",
			noise: "0.1 of it is for noise", measure: r.btrfsChanged,
		},
		{
			name: "`snapfs run -- true` in an unchanged btrfs workspace with a ready-made clone, to the same on overlay", limit: 1.1, held: 2.5, unit: "×",
			noise: "0.1 of it is for noise", measure: r.btrfsReady,
		},
	}
}

// at returns the means to time whole processes as the user of the setting s, with dir as their working
// directory.
func (r *referee) at(s setting, dir string) *processes { return &processes{lab: r.lab, s: s, dir: dir} }

func (r *referee) version(ctx context.Context) (float64, string, error) {
	empty, err := r.emptyProgram(ctx)
	if err != nil {
		return 0, "", err
	}
	p := r.at(r.overlay, r.dir)
	defer p.close()
	m, err := timing.Medians(ctx, r.many(), p.timed("snapfs version", "version"), p.other("empty", empty), p.other("true", "true"))
	if err = errors.Join(err, p.err); err != nil {
		return 0, "", err
	}
	return timing.Ratio(m[0], m[1]), fmt.Sprintf("snapfs version %s, empty Go program %s, true %s", timing.Ms(m[0]), timing.Ms(m[1]), timing.Ms(m[2])), nil
}

func (r *referee) runToBwrap(ctx context.Context, p *processes) (float64, string, error) {
	m, err := timing.Medians(ctx, r.many(), p.timed("run", "run", "--", "true"), p.other("bwrap", bwrap()...), p.other("true", "true"))
	if err != nil {
		return 0, "", err
	}
	return timing.Ratio(m[0], m[1]), fmt.Sprintf("snapfs run %s, bwrap %s, true %s", timing.Ms(m[0]), timing.Ms(m[1]), timing.Ms(m[2])), nil
}

// btrfsChanged measures `snapfs run` on btrfs relative to a bare snapshot of btrfs. Before each of them a
// file of the workspace is changed, so that both write it to disk.
func (r *referee) btrfsChanged(ctx context.Context) (float64, string, error) {
	dir, over1, err := r.bothTrees(ctx)
	if err != nil {
		return 0, "", err
	}
	n := 0
	change := func(context.Context) error {
		n++
		return os.WriteFile(filepath.Join(dir, tree.FileOf(0)), []byte(strconv.Itoa(n)), 0o644)
	}
	on, off := r.at(r.btrfsRoot, dir), r.at(r.overlay, over1)
	defer on.close()
	defer off.close()
	btrfs, overlay := on.timed("btrfs", "run", "--", "true"), off.timed("overlay", "run", "--", "true")
	btrfs.Before = change
	m, err := timing.Medians(ctx, r.many(), btrfs, overlay, bareSnapshot(dir, change))
	if err = errors.Join(err, on.err, off.err); err != nil {
		return 0, "", err
	}
	return timing.Ratio(m[0]-m[1], m[2]), fmt.Sprintf("btrfs %s, overlay %s, snapshot ioctl %s", timing.Ms(m[0]), timing.Ms(m[1]), timing.Ms(m[2])), nil
}

// bareSnapshot returns the timed operation that makes a btrfs snapshot of dir by the ioctl
// BTRFS_IOC_SNAP_CREATE_V2 alone, in a directory of its own, as snapfs calls it. change is called before,
// untimed.
func bareSnapshot(dir string, change func(context.Context) error) timing.Subject {
	const name = "bare"
	parent := filepath.Dir(dir)
	with := func(f func(src, parent int) error) error {
		src, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer src.Close()
		to, err := os.Open(parent)
		if err != nil {
			return err
		}
		defer to.Close()
		return f(int(src.Fd()), int(to.Fd()))
	}
	return timing.Subject{
		Name: "bare snapshot", Before: change,
		Do: func(context.Context) (took time.Duration, err error) {
			err = with(func(src, parent int) error {
				began := time.Now()
				defer func() { took = time.Since(began) }()
				return btrfs.Snapshot(src, parent, name, false)
			})
			return took, err
		},
		After: func(context.Context) error {
			return with(func(_, parent int) error { return btrfs.Destroy(parent, name) })
		},
	}
}

// btrfsReady measures `snapfs run` on btrfs relative to one on overlay. Before each run on btrfs a fork of
// the workspace has been made in advance (prefork).
func (r *referee) btrfsReady(ctx context.Context) (float64, string, error) {
	dir, over1, err := r.bothTrees(ctx)
	if err != nil {
		return 0, "", err
	}
	on, off := r.at(r.btrfsRoot, dir), r.at(r.overlay, over1)
	defer on.close()
	defer off.close()
	btrfs, overlay := on.timed("btrfs", "run", "--", "true"), off.timed("overlay", "run", "--", "true")
	btrfs.Before = func(ctx context.Context) error {
		if err := r.e.AwaitSweeper(ctx); err != nil {
			return err
		}
		_, err := r.e.Collect(ctx)
		return errors.Join(err, vfs.SyncFSOf(dir))
	}
	p := r.many()
	p.Rounds /= 2
	m, err := timing.Medians(ctx, p, btrfs, overlay)
	if err = errors.Join(err, on.err, off.err); err != nil {
		return 0, "", err
	}
	return timing.Ratio(m[0], m[1]), fmt.Sprintf("btrfs %s, overlay %s", timing.Ms(m[0]), timing.Ms(m[1])), nil
}

func (r *referee) bothTrees(ctx context.Context) (btrfs, overlay string, err error) {
	if btrfs, err = r.tree(ctx, r.btrfsRoot, smallest); err != nil {
		return "", "", err
	}
	overlay, err = r.tree(ctx, r.overlay, smallest)
	return btrfs, overlay, err
}
