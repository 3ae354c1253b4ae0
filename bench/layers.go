//go:build linux

package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/undo"
)

// A contest is the same work on a tree as it is and above it, with one layer or
// another, each by a worker of its own.
type contest struct {
	*lab
	dir     string // of everything
	workers []subjectWorker
	back    undo.Stack
}

type subjectWorker struct {
	name string
	*worker
	err error
}

// bareTree is what the others are compared with.
const bareTree = "the bare tree"

// layers measures what a layer above a tree costs: ours, the kernel's, and
// fuse-overlayfs, side by side.
func (l *lab) layers(ctx context.Context) (results []Result, err error) {
	if os.Geteuid() != 0 {
		return []Result{{Kind: kindLayers, Setting: bareTree, Error: "needs root, to mount"}}, nil
	}
	c := &contest{lab: l, dir: filepath.Join(l.dir, "layers")}
	defer c.back.UndoInto(&err)
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	for _, j := range layerAmountsOf(l.Quick).jobs() {
		l.Say("layers: " + j.what)
		var subjects []subject
		for _, w := range c.workers {
			subjects = append(subjects, subject{name: w.name, do: func(context.Context) (time.Duration, error) {
				if w.err != nil {
					return 0, w.err
				}
				return w.do(j.name)
			}})
		}
		samples, err := interleave(ctx, plan{rounds: min(l.Rounds, 3), warm: 1}, subjects...)
		for _, s := range samples {
			r := resultOf(Result{Kind: kindLayers, What: j.what, Setting: s.name, Ratio: pairs(s.took, samples[0].took)}, s)
			results = append(results, r)
		}
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// open fills a tree, puts each layer above it, and starts the workers. The tree as it
// is has one of its own, because work changes it.
func (c *contest) open(ctx context.Context) error {
	c.Say("layers: preparing work")
	lower, bare := filepath.Join(c.dir, "lower"), filepath.Join(c.dir, "bare")
	c.back.Push("remove the trees", func() error { return removeTree(c.dir) })
	for _, dir := range []string{c.dir, lower, bare} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{lower, bare} {
		args := append(c.roleArgs(RolePrepare), "--only", kindLayers)
		if err := run.Run(ctx, run.Program{Name: c.Program, Args: args, Env: workEnv(dir), Dir: dir}); err != nil {
			return err
		}
	}
	for _, top := range []struct {
		name string
		put  func(ctx context.Context, lower, top string) error
	}{
		{bareTree, nil},
		{"overlay", c.kernelOverlay},
		{"fuse-overlayfs", c.fuseOverlayfs},
		{"fusecow", c.ours("fusecow")},
		{"fusecow-overlay", c.ours("fusecow-overlay")},
	} {
		w := subjectWorker{name: top.name}
		dir := bare
		if top.put != nil {
			dir = filepath.Join(c.dir, top.name)
			if w.err = os.MkdirAll(dir+"/merged", 0o755); w.err == nil {
				w.err = top.put(ctx, lower, dir)
			}
			dir += "/merged"
		}
		if w.err == nil {
			w.worker, w.err = c.outside(ctx, dir, "--only", kindLayers)
		}
		if w.err == nil {
			c.back.Push("end a worker", w.close)
		}
		c.workers = append(c.workers, w)
	}
	return ctx.Err()
}

func (c *contest) kernelOverlay(_ context.Context, lower, top string) error {
	if err := makeUpper(top); err != nil {
		return err
	}
	m, err := kernel.MountOverlay(kernel.Overlay{Lower: []string{lower}, Upper: top + "/upper", Work: top + "/work"})
	if err != nil {
		return err
	}
	return c.attach(top, m)
}

func (c *contest) fuseOverlayfs(ctx context.Context, lower, top string) error {
	err := makeUpper(top)
	if err == nil {
		err = run.Run(ctx, run.Program{Name: "fuse-overlayfs", Args: fuseOverlayArgs(lower, top), Dir: c.dir})
	}
	if err == nil {
		c.mounted(top)
	}
	return err
}

// makeUpper makes what an overlay writes to.
func makeUpper(top string) error {
	return errors.Join(os.Mkdir(top+"/upper", 0o755), os.Mkdir(top+"/work", 0o755))
}

// attach puts a mount where the others have theirs.
func (c *contest) attach(top string, m *os.File) error {
	defer m.Close()
	err := kernel.MoveMount(m, atCWD, top+"/merged")
	if err == nil {
		c.mounted(top)
	}
	return err
}

// mounted has it unmounted at the end.
func (c *contest) mounted(top string) {
	c.back.Push("unmount "+top, func() error { return kernel.Unmount(top + "/merged") })
}

// ours mounts a fork of a backend as a sandbox has it.
func (c *contest) ours(backend string) func(ctx context.Context, lower, top string) error {
	return func(ctx context.Context, lower, top string) error {
		drivers := all.Drivers()
		at := slices.IndexFunc(drivers, func(d snapshot.Driver) bool { return d.Name == backend })
		if at < 0 {
			return errors.New("there is no such backend")
		}
		b, err := drivers[at].Open(ctx, snapshot.Place{Dir: top + "/state", Tree: snapshot.Tree{Path: lower}})
		if err != nil {
			return err
		}
		if _, err = b.Capture(ctx, snapshot.Tree{Path: lower}, "lower"); err != nil {
			return err
		}
		f, err := b.Fork(ctx, "lower", "fork")
		if err != nil {
			return err
		}
		served, o := f.View.Served, f.View.Overlay
		if o != nil {
			served = o.Base
		}
		fd, err := served.Mount(ctx, o != nil)
		if err != nil {
			return err
		}
		m := os.NewFile(uintptr(fd), "fork")
		if o != nil {
			defer m.Close()
			if m, err = kernel.MountOverlay(kernel.Overlay{Lower: []string{kernel.FDPath(m)}, Upper: o.Upper, Work: o.Work}); err != nil {
				return err
			}
		}
		return c.attach(top, m)
	}
}

// forget has the kernel forget the pages that it keeps of a file.
func forget(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
