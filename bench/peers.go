//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/bench/jobs"
	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/internal/run"
)

// bwrap returns the bubblewrap command line that is timed for comparison with `snapfs run`.
func bwrap() []string {
	return []string{"bwrap", "--unshare-all", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"}
}

// peersLargest is the largest tree, in files, with which programs that copy file by file are measured.
const peersLargest = 100_000

// peers measures other programs that isolate commands or copy trees, and snapfs for comparison. It needs
// root, and uses the disk's filesystem except for programs that need btrfs.
func (l *lab) peers(ctx context.Context) ([]Result, error) {
	s := l.settings()[0]
	results, err := l.isolators(ctx, s)
	for _, files := range l.Sizes {
		if err != nil || files > peersLargest {
			break
		}
		var found []Result
		found, err = l.copiers(ctx, s, files)
		results = append(results, found...)
	}
	return results, err
}

// isolators measures programs that run one isolated command, such as bwrap, for comparison with snapfs.
func (l *lab) isolators(ctx context.Context, s setting) (results []Result, err error) {
	l.Say("others: one command, isolated")
	root, err := l.smallRoot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	dir, giveBack, err := l.borrow(ctx, s, crowdFiles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	p := processes{lab: l, s: s, dir: dir}
	defer p.close()
	tree := filepath.Join(root, "rootfs")
	list := []timing.Subject{
		p.other("true", "true"),
		p.timed("snapfs run -- true (clones the machine, isolates, prints changes)", "run", "--", "true"),
		p.other("bubblewrap, all namespaces, the real / (clones nothing)", bwrap()...),
		p.other("systemd-nspawn --ephemeral, a root of 2 files", "systemd-nspawn", "--ephemeral", "--quiet", "--register=no", "--keep-unit", "-D", tree, "/usr/bin/true"),
		p.other("crun run, a root of 2 files (clones nothing)", "crun", "run", "--bundle", root, fmt.Sprintf("snapfs-bench-c%d", os.Getpid())),
		p.other("runc run, a root of 2 files (clones nothing)", "runc", "run", "--bundle", root, fmt.Sprintf("snapfs-bench-r%d", os.Getpid())),
	}
	if p.err != nil {
		return nil, p.err
	}
	samples, err := timing.Interleave(ctx, timing.Plan{Rounds: l.Rounds, Warm: 2, Budget: 60 * time.Second}, list...)
	for _, found := range samples {
		results = append(results, resultOf(Result{Kind: "peers", What: "one command, isolated", Setting: found.Name}, found))
	}
	return results, errors.Join(err, Clear(context.WithoutCancel(ctx), s.State))
}

// copiers measures programs that copy a tree with this many files, such as cp, and the removal of the copy.
func (l *lab) copiers(ctx context.Context, s setting, files int) (results []Result, err error) {
	l.Say(fmt.Sprintf("others: a copy of %d files", files))
	dir, giveBack, err := l.borrow(ctx, s, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	if err := jobs.GitInit(ctx, dir); err != nil {
		results = append(results, Result{Kind: "peers", What: "a copy made and removed", Setting: "git", Files: files, Error: err.Error()})
	}
	defer func() { err = errors.Join(err, Clear(context.WithoutCancel(ctx), s.State)) }()
	list := []timing.Subject{
		{Name: "snapfs new, snapfs rm (the whole machine)", Do: timing.Timing(l.commands(s, dir, []string{l.Program, "new", "peer"}, []string{l.Program, "rm", "peer"}))},
		{Name: "fuse-overlayfs, umount", Do: timing.Timing(l.fuseOverlay(s, dir))},
		{Name: "git worktree add, remove", Do: timing.Timing(l.commands(s, dir, []string{"git", "worktree", "add", "-q", "--detach", dir + ".peer"}, []string{"git", "worktree", "remove", "--force", dir + ".peer"}))},
		{Name: "cp -a, rm -r", Do: timing.Timing(l.commands(s, dir, []string{"cp", "-a", dir, dir + ".peer"}, []string{"rm", "-r", dir + ".peer"}))},
	}
	p := timing.Plan{Rounds: min(l.Rounds, 10), Warm: 1, Budget: 40 * time.Second}
	samples, err := timing.Interleave(ctx, p, list...)
	more, berr := l.reflinks(ctx, files, p)
	for _, found := range append(samples, more...) {
		results = append(results, resultOf(Result{Kind: "peers", What: "a copy made and removed", Setting: found.Name, Files: files}, found))
	}
	return results, errors.Join(err, berr)
}

// reflinks measures cp --reflink on btrfs, and snapfs for comparison, with a tree of this many files.
func (l *lab) reflinks(ctx context.Context, files int, p timing.Plan) (_ []timing.Sample, err error) {
	const name = "btrfs: cp -a --reflink=always, rm -r"
	if l.btrfs == "" {
		return []timing.Sample{{Name: name, Err: l.noBtrfs}}, nil
	}
	s := l.setting("btrfs", "btrfs", l.btrfs, 0)
	dir, giveBack, err := l.borrow(ctx, s, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	defer func() { err = errors.Join(err, Clear(context.WithoutCancel(ctx), s.State)) }() // before its tree goes
	return timing.Interleave(ctx, p,
		timing.Subject{Name: "btrfs: snapfs new, snapfs rm (the whole machine)", Do: timing.Timing(l.commands(s, dir, []string{l.Program, "new", "peer"}, []string{l.Program, "rm", "peer"}))},
		timing.Subject{Name: name, Do: timing.Timing(l.commands(s, dir, []string{"cp", "-a", "--reflink=always", dir, dir + ".peer"}, []string{"rm", "-r", dir + ".peer"}))})
}

// commands returns a function that runs the command lines one after another in dir, as the user of the
// setting s.
func (l *lab) commands(s setting, dir string, lines ...[]string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, args := range lines {
			if err := run.Run(ctx, run.Program{Name: args[0], Args: args[1:], Env: s.env(), Dir: dir}); err != nil {
				return err
			}
		}
		return nil
	}
}

func (l *lab) fuseOverlay(s setting, dir string) func(context.Context) error {
	top := dir + ".fuse"
	return func(ctx context.Context) (err error) {
		for _, d := range []string{"", "/upper", "/work", "/merged"} {
			if err := os.Mkdir(top+d, 0o755); err != nil {
				return err
			}
		}
		err = l.commands(s, s.Dir, append([]string{"fuse-overlayfs"}, fuseOverlayArgs(dir, top)...),
			[]string{"umount", top + "/merged"})(ctx)
		return errors.Join(err, os.RemoveAll(top))
	}
}

// fuseOverlayArgs returns the command line that mounts a fuse-overlayfs of lower at
// top/merged.
func fuseOverlayArgs(lower, top string) []string {
	return []string{"-o", "lowerdir=" + lower + ",upperdir=" + top + "/upper,workdir=" + top + "/work", top + "/merged"}
}
