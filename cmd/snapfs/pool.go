//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A pools constructs the commands below `snapfs pool`, which manage a pool (a btrfs in an image file that
// holds workspaces) called name.
type pools struct {
	a    *app
	name string
}

func newPool(a *app) *cobra.Command {
	p := &pools{a: a}
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "manage pools: frozen bases on any host, as btrfs in a sparse file",
		Long: `A pool is a btrfs filesystem in a sparse file. Importing copies a workspace into the
pool once, and later only its changes; its sandboxes have a frozen base and start as
fast as on btrfs. Adopting moves a workspace onto the pool and mounts it in place, so
that it needs no import. Creating and using a pool requires root.`,
		Example: `  snapfs pool create --size 20G
  snapfs pool import ~/project
  snapfs pool status`,
	}
	cmd.PersistentFlags().StringVar(&p.name, "pool", pool.Main, "the `name` of the pool")
	cmd.RegisterFlagCompletionFunc("pool", p.complete) //nolint:errcheck // the flag is there
	return group(cmd, p.create(), p.grow(), p.imports(), p.adopt(), p.unadopt(), p.drop(), p.status(), p.rm())
}

// dir returns the path of the directory, in the state directory, that holds the image files of all pools.
func (p *pools) dir(ctx context.Context) (string, error) {
	e, err := p.a.engine(ctx)
	if err != nil {
		return "", err
	}
	return e.DataDir(pool.Driver.Name), nil
}

func (p *pools) open(ctx context.Context) (*pool.Pool, error) {
	dir, err := p.dir(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := pool.Open(ctx, dir, p.name)
	return opened, because(err, errs.ErrNotFound, "no pool of this name", "snapfs pool create --pool "+p.name)
}

// because improves an error for a person. If err wraps an *errs.Error of this kind without hints, because
// sets its cause to the text why and adds the hints. It returns err.
func because(err, kind error, why string, hints ...string) error {
	var e *errs.Error
	if errors.As(err, &e) && errors.Is(e.Kind, kind) && len(e.Hints) == 0 {
		e.Err, e.Hints = errors.New(why), hints
	}
	return err
}

func (p *pools) create() *cobra.Command {
	size := size(20 << 30)
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "create a pool",
		Example: "  snapfs pool create --size 20G",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := p.dir(cmd.Context())
			if err != nil {
				return err
			}
			made, err := pool.Create(cmd.Context(), dir, p.name, snapshot.Bytes(size))
			if err != nil {
				return because(err, errs.ErrExists, "the name is taken", "snapfs pool status --pool "+p.name)
			}
			return p.print(made)
		},
	}
	cmd.Flags().Var(&size, "size", "maximum size; disk space is used as data is added")
	return cmd
}

func (p *pools) grow() *cobra.Command {
	return &cobra.Command{
		Use:     "grow size",
		Short:   "enlarge a pool",
		Example: "  snapfs pool grow 40G",
		Args:    exactly("size"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var to size
			if err := to.Set(args[0]); err != nil {
				return usageError(fmt.Errorf("size %q: %w", args[0], err))
			}
			opened, err := p.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := opened.Grow(cmd.Context(), snapshot.Bytes(to)); err != nil {
				return err
			}
			return p.print(opened)
		},
	}
}

// A poolCopy is a method of a pool that copies a workspace into the pool or out of it, and reports progress
// to its last argument.
type poolCopy func(p *pool.Pool) func(context.Context, string, func(pool.Progress)) (pool.Report, error)

func (p *pools) copyCommand(cmd *cobra.Command, how poolCopy) *cobra.Command {
	cmd.Args = atMost("directory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		tree, err := realDirectory(dir)
		if err != nil {
			return err
		}
		opened, err := p.open(cmd.Context())
		if err != nil {
			return err
		}
		before, err := originalDir(opened, tree)
		if err != nil {
			return err
		}
		line := newProgress(p.a.ui)
		report, err := how(opened)(cmd.Context(), tree, line.copying)
		line.end()
		if err != nil {
			return err
		}
		after, err := originalDir(opened, tree)
		if err != nil {
			return err
		}
		p.printOriginalDir(tree, before, after)
		return p.a.ui.result(carriedDocument(tree, report, cmp.Or(after, before)), func(w io.Writer) error {
			for _, path := range report.Unsettled {
				p.a.ui.notice("changed while it was copied: " + path)
			}
			_, err := fmt.Fprintf(w, "%s: %d seen, %d copied (%v), %d deleted\n", tame(tree), report.Seen, report.Copied, report.Bytes, report.Deleted)
			return err
		})
	}
	return cmd
}

// originalDir returns the path to which the original directory of a workspace was renamed when the pool
// adopted the workspace, or "". tree is the workspace.
func originalDir(opened *pool.Pool, tree string) (string, error) {
	s, err := opened.Status()
	for _, t := range s.Trees {
		if t.Path == tree {
			return t.Original, err
		}
	}
	return "", err
}

// printOriginalDir prints where the original directory of a workspace is, after the workspace was moved into
// a pool (adopted) or out of it again. before and after are what originalDir returned before and after the
// command.
func (p *pools) printOriginalDir(tree, before, after string) {
	switch {
	case after == before:
	case after != "":
		p.a.ui.notice("the original directory stays at " + after)
		p.a.ui.hint("snapfs pool drop-original " + errs.Quoted(tree))
	default:
		p.a.ui.notice("the original directory from the adoption stays at " + before)
		p.a.ui.hint("rm -r " + errs.Quoted(before))
	}
}

func (p *pools) imports() *cobra.Command {
	return p.copyCommand(&cobra.Command{
		Use:     "import [directory]",
		Short:   "copy a workspace into a pool or update its copy",
		Example: "  snapfs pool import ~/project",
	}, func(p *pool.Pool) func(context.Context, string, func(pool.Progress)) (pool.Report, error) {
		return p.Import
	})
}

func (p *pools) adopt() *cobra.Command {
	return p.copyCommand(&cobra.Command{
		Use:   "adopt [directory]",
		Short: "move a workspace onto a pool and mount it in place",
		Long: `Moves a workspace onto a pool and mounts it in place. The original directory stays
beside it until snapfs pool drop-original deletes it.`,
		Example: "  snapfs pool adopt ~/project",
	}, func(p *pool.Pool) func(context.Context, string, func(pool.Progress)) (pool.Report, error) {
		return p.Adopt
	})
}

func (p *pools) unadopt() *cobra.Command {
	return p.copyCommand(&cobra.Command{
		Use:   "unadopt [directory]",
		Short: "move an adopted workspace back to its own filesystem",
		Long: `Moves an adopted workspace back to its own filesystem. The original directory of the
adoption stays, unless snapfs pool drop-original deleted it before.`,
		Example: "  snapfs pool unadopt ~/project",
	}, func(p *pool.Pool) func(context.Context, string, func(pool.Progress)) (pool.Report, error) {
		return func(ctx context.Context, tree string, progress func(pool.Progress)) (pool.Report, error) {
			report, err := p.Unadopt(ctx, tree, progress)
			return report, because(err, errs.ErrNotFound, "the workspace is not adopted")
		}
	})
}

func (p *pools) drop() *cobra.Command {
	return &cobra.Command{
		Use:     "drop-original directory",
		Short:   "delete the original directory of an adopted workspace",
		Example: "  snapfs pool drop-original ~/project",
		Args:    exactly("directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tree, err := realDirectory(args[0])
			if err != nil {
				return err
			}
			opened, err := p.open(cmd.Context())
			if err != nil {
				return err
			}
			original, err := originalDir(opened, tree)
			if err != nil {
				return err
			}
			if err := opened.DropOriginal(cmd.Context(), tree); err != nil {
				return because(err, errs.ErrNotFound, "it has no original directory")
			}
			return p.a.ui.result(droppedDocument{tree, original}, func(io.Writer) error { return nil })
		},
	}
}

func (p *pools) rm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm",
		Short:   "remove a pool and its imports",
		Example: "  snapfs pool rm --pool old",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.remove(cmd.Context()); err != nil {
				return err
			}
			return p.a.ui.result(nameDocument{p.name}, func(io.Writer) error { return nil })
		},
	}
}

// remove deletes the pool, an image file that holds workspaces, and before that the cached bases of the
// workspaces in it.
func (p *pools) remove(ctx context.Context) error {
	e, err := p.a.engine(ctx)
	if err != nil {
		return err
	}
	opened, err := p.open(ctx)
	if err != nil {
		return err
	}
	s, err := opened.Status()
	if err != nil {
		return err
	}
	driver := pool.Driver.Name
	for _, t := range s.Trees {
		if err := e.DropBases(ctx, driver, t.Path); err != nil {
			return err
		}
	}
	forget, err := e.PlacesIn(ctx, opened.Dir)
	if err != nil {
		return err
	}
	if err := pool.Remove(ctx, e.DataDir(driver), p.name); err != nil {
		return err
	}
	return forget()
}

func (p *pools) status() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "show a pool and its contents",
		Example: "  snapfs pool status",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened, err := p.open(cmd.Context())
			if err != nil {
				return err
			}
			return p.print(opened)
		},
	}
}

func (p *pools) print(opened *pool.Pool) error {
	s, err := opened.Status()
	if err != nil {
		return err
	}
	return p.a.ui.result(statusDocument(s), func(w io.Writer) error { return printPool(w, s) })
}

func printPool(w io.Writer, s pool.Status) error {
	fmt.Fprintf(w, "%s: %v on disk of %v, %v free, at %s\n", s.Name, s.OnDisk, s.Size, s.Free, s.Mount)
	fmt.Fprintf(w, "filesystem below: %v free, %v of it reserved\n", s.HostFree, s.Reserve)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, tree := range s.Trees {
		how := "imported"
		if tree.Adopted {
			how = "adopted"
		}
		fmt.Fprintf(t, "%s\t%s\tas of %s ago\n", tame(tree.Path), how, age(time.Since(tree.Synced)))
	}
	return t.Flush()
}

func (p *pools) complete(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	dir := p.a.stateDir()
	names, _ := pool.List(filepath.Join(dir, "data", pool.Driver.Name))
	return names, noFiles
}
