//go:build linux

package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/bench/jobs"
	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/undo"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A contest compares how fast the same jobs run on a bare tree and on layers (such as overlayfs) on top of
// equal trees.
type contest struct {
	*lab
	dir        string // of everything
	contenders []*contender
	back       undo.Stack
}

// A contender is the bare tree or one layer on top of a tree, with a worker process that runs the jobs in it.
type contender struct {
	name string
	// put mounts the layer at top/merged, and stores its data beside that; nil for the bare tree.
	put func(ctx context.Context, lower, top string) error
	// puts counts the calls of put, and top is the directory of the last call.
	puts int
	top  string
	*worker
	err error
}

// bareTree is the name, in the comparison of layers such as overlayfs, of the tree without a layer: the
// baseline.
const bareTree = "the bare tree"

// layers measures the same jobs on layers, filesystems that store the changes of a tree (those of snapfs,
// overlayfs and fuse-overlayfs), and on the bare tree.
func (l *lab) layers(ctx context.Context) (results []Result, err error) {
	if os.Geteuid() != 0 {
		return []Result{{Kind: kindLayers, Setting: bareTree, Error: "needs root, to mount"}}, nil
	}
	c := &contest{lab: l, dir: filepath.Join(l.dir, "layers")}
	defer c.back.UndoInto(&err)
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	for _, j := range jobs.LayerAmountsOf(l.Quick).Jobs() {
		l.Say("layers: " + j.What)
		var subjects []timing.Subject
		for _, s := range c.contenders {
			subjects = append(subjects, c.subject(s, j))
		}
		samples, err := timing.Interleave(ctx, timing.Plan{Rounds: min(l.Rounds, 3), Warm: 1}, subjects...)
		for _, s := range samples {
			r := resultOf(Result{Kind: kindLayers, What: j.What, Setting: s.Name, Ratio: timing.Pairs(s.Took, samples[0].Took)}, s)
			results = append(results, r)
		}
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// subject returns the timed operation that runs the job j in the contender's worker process, in a fresh layer
// if the job needs one.
func (c *contest) subject(s *contender, j jobs.Job) timing.Subject {
	ready := func(ctx context.Context) error {
		if s.err == nil && j.First {
			s.err = c.stop(s)
			if s.err == nil {
				s.err = c.start(ctx, s)
			}
		}
		return s.err
	}
	return timing.Subject{Name: s.name, Before: ready, Do: func(context.Context) (time.Duration, error) { return s.do(j.Name) }}
}

// open fills a tree, mounts each contender's layer on top of it, and starts the workers. The bare tree is a
// second, equal tree, because its worker changes it.
func (c *contest) open(ctx context.Context) error {
	c.Say("layers: preparing work")
	c.back.Push("remove the trees", func() error { return removeTree(c.dir) })
	for _, dir := range []string{c.dir, c.lower(), c.bare()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{c.lower(), c.bare()} {
		args := append(c.roleArgs(RolePrepare), "--only", kindLayers)
		if err := run.Run(ctx, run.Program{Name: c.Self, Args: args, Env: jobs.Env(dir), Dir: dir}); err != nil {
			return err
		}
	}
	c.contenders = []*contender{
		{name: bareTree},
		{name: "overlay", put: c.kernelOverlay},
		{name: "fuse-overlayfs", put: c.fuseOverlayfs},
		{name: "fusecow", put: c.ours("fusecow")},
		{name: "fusecow-overlay", put: c.ours("fusecow-overlay")},
	}
	for _, s := range c.contenders {
		c.back.Push("end "+s.name, func() error { return c.stop(s) })
		s.err = c.start(ctx, s)
	}
	return ctx.Err()
}

func (c *contest) lower() string { return filepath.Join(c.dir, "lower") }
func (c *contest) bare() string  { return filepath.Join(c.dir, "bare") }

// start mounts the layer of the compared filesystem s with an empty upper and starts the worker process in
// it.
func (c *contest) start(ctx context.Context, s *contender) (err error) {
	dir := c.bare()
	if s.put != nil {
		s.puts++
		top := filepath.Join(c.dir, s.name, strconv.Itoa(s.puts))
		dir = top + "/merged"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := s.put(ctx, c.lower(), top); err != nil {
			return err
		}
		s.top = top
	}
	s.worker, err = c.outside(ctx, dir, "--only", kindLayers)
	return err
}

// stop ends the worker process of the compared filesystem s and unmounts that filesystem's layer.
func (c *contest) stop(s *contender) (err error) {
	if s.worker != nil {
		err = s.worker.close()
		s.worker = nil
	}
	if s.top != "" {
		err = errors.Join(err, mount.Unmount(s.top+"/merged"))
		s.top = ""
	}
	return err
}

func (c *contest) kernelOverlay(_ context.Context, lower, top string) error {
	if err := makeUpper(top); err != nil {
		return err
	}
	m, err := mount.NewOverlay(mount.Overlay{Lower: []string{lower}, Upper: top + "/upper", Work: top + "/work"})
	if err != nil {
		return err
	}
	return attach(top, m)
}

func (c *contest) fuseOverlayfs(ctx context.Context, lower, top string) error {
	err := makeUpper(top)
	if err == nil {
		err = run.Run(ctx, run.Program{Name: "fuse-overlayfs", Args: fuseOverlayArgs(lower, top), Dir: c.dir})
	}
	return err
}

// makeUpper makes the upper and work directories of an overlay mount, empty, in the directory top.
func makeUpper(top string) error {
	return errors.Join(os.Mkdir(top+"/upper", 0o755), os.Mkdir(top+"/work", 0o755))
}

// attach attaches the detached mount m at top/merged, where every layer of the comparison is mounted.
func attach(top string, m *os.File) error {
	defer m.Close()
	return mount.MoveMount(m, top+"/merged")
}

// ours returns a function that mounts a fork of the named backend of snapfs on top of the tree lower at
// top/merged, as in a sandbox.
func (c *contest) ours(backend string) func(ctx context.Context, lower, top string) error {
	return func(ctx context.Context, lower, top string) error {
		drivers := all.Drivers
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
		o := f.View.Overlay
		if o == nil {
			m, err := mountServed(ctx, f.View.Served, false)
			if err != nil {
				return err
			}
			return attach(top, m)
		}
		ov := mount.Overlay{Upper: o.Upper, Work: o.Work}
		for _, s := range o.Base {
			m, err := mountServed(ctx, s, true)
			if err != nil {
				return err
			}
			defer m.Close()
			ov.Lower = append(ov.Lower, vfs.FDPath(m))
		}
		m, err := mount.NewOverlay(ov)
		if err != nil {
			return err
		}
		return attach(top, m)
	}
}

func mountServed(ctx context.Context, s snapshot.Served, readOnly bool) (*os.File, error) {
	fd, err := s.Mount(ctx, readOnly)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "fork"), nil
}
