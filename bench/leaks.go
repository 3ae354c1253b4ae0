//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/mount"
)

// patience is how long the check for leaks waits for background cleaning. Objects that exist after it count
// as leaked.
const patience = 15 * time.Second

// spares is how many files a backend may store for reuse without the check counting them as leaked.
const spares = 500

// A census counts the objects of which sandboxes are made: mounts, loop devices, subvolumes and files. The
// check for leaks compares two of them.
type census struct{ mounts, loops, subvolumes, files int }

// more returns how many more objects (mounts, files and so on) the later count c has than d, added over the
// kinds. The first 500 additional files, which a backend may store for reuse, do not count.
func (c census) more(d census) int {
	return max(c.mounts-d.mounts, 0) + max(c.loops-d.loops, 0) + max(c.subvolumes-d.subvolumes, 0) + max(c.files-d.files-spares, 0)
}

func (c census) String() string {
	return fmt.Sprintf("%d mounts, %d loop devices, %d subvolumes, %d files of state", c.mounts, c.loops, c.subvolumes, c.files)
}

// count counts the mounts, loop devices, subvolumes and files that belong to the setting s, to find those
// that sandboxes leave behind.
func (r *referee) count(s setting) (c census, err error) {
	mounts, err := mount.List()
	if err != nil {
		return c, err
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.Path, r.dir+"/") && !strings.HasPrefix(m.Path, s.Dir+"/tree-") {
			c.mounts++
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return c, err
	}
	for _, path := range loops {
		if image, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(image), r.dir+"/") {
			c.loops++
		}
	}
	for _, dir := range r.trees {
		n, err := subvolumes(dir)
		if err != nil {
			return c, err
		}
		c.subvolumes += n
	}
	err = filepath.WalkDir(s.State, func(_ string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // cleaned away meanwhile
		}
		c.files++
		return err
	})
	return c, err
}

// subvolumes counts the btrfs subvolumes in dir; 0 if dir is not on btrfs.
func subvolumes(dir string) (int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if on, err := btrfs.Is(int(f.Fd())); err != nil || !on {
		return 0, err
	}
	nested, err := btrfs.Nested(int(f.Fd()))
	return len(nested), err
}

// settle counts the mounts, files and so on of the setting s for the first time; later counts are compared
// with that. First it makes and removes a sandbox of dir, so that permanent objects exist already.
func (r *referee) settle(ctx context.Context, s setting, dir string) error {
	if _, done := r.before[s.Name]; done {
		return nil
	}
	const name = "settle"
	if _, err := r.e.New(ctx, hostfs.Request{Name: name, Workspace: dir, Backend: s.Driver, Policy: policy()}); err != nil {
		return err
	}
	if err := r.e.Remove(ctx, name); err != nil {
		return err
	}
	if _, err := r.e.Collect(ctx); err != nil {
		return err
	}
	c, err := r.count(s)
	r.before[s.Name] = c
	return err
}

// leaks returns the measuring function of a check: it counts the mounts, subvolumes, files and so on that the
// checks with many sandboxes have left behind.
func (r *referee) leaks(s *setting) func(context.Context) (float64, string, error) {
	return func(ctx context.Context) (float64, string, error) {
		before, ok := r.before[s.Name]
		if !ok {
			return 0, "", errors.New("nothing was made: " + s.Error)
		}
		began := time.Now()
		for {
			if _, err := r.e.Collect(ctx); err != nil {
				return 0, "", err
			}
			now, err := r.count(*s)
			if err != nil {
				return 0, "", err
			}
			if now.more(before) == 0 || time.Since(began) > patience || ctx.Err() != nil {
				return float64(now.more(before)), fmt.Sprintf("before: %s; after, and %.1f s of cleaning: %s", before, time.Since(began).Seconds(), now), ctx.Err()
			}
			pause()
		}
	}
}
