//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
)

// promoted is the number of changed files that the checks of promotions promote, a hundred in each directory;
// promotedSize is their size in bytes.
const promoted, promotedSize = 10_000, 3000

// A promotion may take promoteLimit times as long as a copy; the others are the regression bounds by filesystem.
const promoteLimit, heldOnExt4, heldOnBtrfs = 1.5, 2, 3.5

// promoteChecks returns the checks that compare a promotion with copying the files. On btrfs a promotion
// misses its promise and only has to stay within the bound held: it exchanges names file by file, while a
// copy shares blocks. On ext4 the promise just holds.
func (r *referee) promoteChecks() []check {
	const name = "promoting 10,000 changed files on %s, to be undone, to `cp -a` of them and a sync"
	return []check{
		{name: fmt.Sprintf(name, "ext4"), limit: promoteLimit, held: heldOnExt4, unit: "×", measure: r.promoteToCopy("ext4", heldOnExt4)},
		{name: fmt.Sprintf(name, "btrfs"), limit: promoteLimit, held: heldOnBtrfs, unit: "×", measure: r.promoteToCopy("btrfs", heldOnBtrfs)},
	}
}

// promoteToCopy returns the measuring function of a check: the time of a promotion relative to a plain copy
// of the files. It uses a fresh filesystem of the type fs, where a sync writes no other program's files. held is the
// regression bound of the check.
func (r *referee) promoteToCopy(fs string, held float64) measure {
	return func(ctx context.Context) (value float64, detail string, err error) {
		top, down, err := r.disk(ctx, fs)
		if err != nil {
			return 0, "", err
		}
		defer func() { err = errors.Join(err, down()) }()
		files, pace := promoted, timing.Plan{Rounds: 7, Warm: 1, Budget: 60 * time.Second, Enough: timing.Settled(timing.Quotient, promoteLimit, held)}
		if r.Quick {
			files, pace = promoted/10, timing.Plan{Rounds: 3}
		}
		w, err := newWayBack(ctx, top, files)
		if err != nil {
			return 0, "", err
		}
		defer func() { err = errors.Join(err, w.close()) }()
		samples, err := timing.Interleave(ctx, pace, w.promotion(), w.copy())
		if err != nil {
			return 0, "", err
		}
		for _, s := range samples {
			if s.Err != nil {
				return 0, "", fmt.Errorf("%s: %w", s.Name, s.Err)
			}
		}
		ours, copied := samples[0].Took, samples[1].Took
		return timing.Ratio(timing.Median(ours), timing.Median(copied)), fmt.Sprintf("promote %s, copy %s; the least of each: %s, %s, %d files",
			timing.Ms(timing.Median(ours)), timing.Ms(timing.Median(copied)), timing.Ms(slices.Min(ours)), timing.Ms(slices.Min(copied)), files), nil
	}
}

// disk mounts a fresh filesystem of type fs from an image file and returns its directory. down
// unmounts it. The unlinked image and its loop device disappear with the mount.
func (r *referee) disk(ctx context.Context, fs string) (dir string, down func() error, err error) {
	if dir, err = os.MkdirTemp(r.dir, "promote-"); err != nil {
		return "", nil, err
	}
	image, err := os.CreateTemp(r.dir, "image")
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	defer image.Close()
	force := map[string]string{"ext4": "-F", "btrfs": "-f"}[fs]
	err = image.Truncate(imageSize)
	if err == nil {
		_, err = run.Output(ctx, "mkfs."+fs, "-q", force, image.Name())
	}
	if err == nil {
		err = mountImage(fs, image, dir)
	}
	err = errors.Join(err, os.Remove(image.Name()))
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, func() error { return errors.Join(mount.Unmount(dir), os.Remove(dir)) }, nil
}

// A wayBack is a real tree and a sandbox's changed copy of it. The checks time promoting the changes, and
// copying them, to the real tree.
type wayBack struct {
	top           string
	real, sandbox *os.File
	changes       []diff.Change
	options       promote.Options
	last          promote.Result
}

func newWayBack(ctx context.Context, top string, files int) (*wayBack, error) {
	w := &wayBack{top: top, options: promote.Options{KeepUndo: true}}
	var err error
	for i, f := range []**os.File{&w.real, &w.sandbox} {
		dir := filepath.Join(top, []string{"real", "sandbox"}[i])
		if err = plantPlain(dir, files, byte(i)); err == nil {
			*f, err = os.Open(dir)
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	time.Sleep(diff.Racy) // what is written from here on has a later time
	w.options.Base.Taken = time.Now()
	if w.changes, err = diff.Trees(ctx, w.real, w.sandbox, diff.Options{}); err == nil {
		changed := 0
		for _, c := range w.changes {
			if c.New != nil && c.New.Mode.IsRegular() {
				changed++
			}
		}
		if changed != files {
			err = fmt.Errorf("%d of %d files differ", changed, files)
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *wayBack) close() error {
	var errs []error
	for _, f := range []*os.File{w.real, w.sandbox} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// plantPlain makes a tree in dir with this many files, each filled with the byte fill.
func plantPlain(dir string, files int, fill byte) error {
	content := make([]byte, promotedSize)
	for i := range content {
		content[i] = byte(i)*7 + fill
	}
	for i := range files {
		in := filepath.Join(dir, fmt.Sprintf("d%03d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(in, 0o755); err != nil {
				return err
			}
		}
		content[0], content[1] = byte(i), byte(i>>8)
		if err := os.WriteFile(filepath.Join(in, fmt.Sprintf("f%02d", i%100)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// idle syncs the filesystem of the trees, so that no earlier writes disturb the next measurement.
func (w *wayBack) idle(context.Context) error { return vfs.SyncFS(int(w.real.Fd())) }

func (w *wayBack) state() string { return filepath.Join(w.top, "state") }

// promotion returns the timed operation that promotes the changed copy to the real tree. After each round,
// untimed, it undoes the promotion so that the next round finds the old tree.
func (w *wayBack) promotion() timing.Subject {
	return timing.Subject{
		Name: "promote", Before: w.idle,
		Do: timing.Timing(func(ctx context.Context) (err error) {
			target := promote.Target{Root: w.real, Path: w.real.Name(), StateDir: w.state()}
			w.last, err = promote.Apply(ctx, target, promote.Source{Tree: w.sandbox}, w.changes, w.options)
			return err
		}),
		After: func(ctx context.Context) error {
			if all := diff.Count(w.changes); w.last.Applied < all {
				return fmt.Errorf("%d of %d changes were carried out", w.last.Applied, all)
			}
			undone, err := promote.Undo(ctx, w.state(), w.last.ID)
			w.options.Base.Known = undone.Stamps
			return err
		},
	}
}

// copy returns the timed operation that is the alternative to a promotion: a plain copy, which detects no
// drift and can be neither undone nor completed after a crash.
func (w *wayBack) copy() timing.Subject {
	to := filepath.Join(w.top, "copy")
	return timing.Subject{
		Name: "copy", Before: w.idle,
		Do: timing.Timing(func(ctx context.Context) error {
			if _, err := run.Output(ctx, "cp", "-a", w.sandbox.Name(), to); err != nil {
				return err
			}
			return vfs.SyncFS(int(w.real.Fd()))
		}),
		After: func(context.Context) error { return os.RemoveAll(to) },
	}
}
