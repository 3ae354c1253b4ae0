package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// What passed the checks of one stage is what goes to the next, or nothing does.
// So it is written down, when a pipeline begins, what the sandbox holds at each
// path that it has changed, and every stage looks whether that is still so.

// contentOf returns a digest for each path of a sandbox's workspace that has changed or is in known, by which
// a later change is detected. The caller has frozen the sandbox.
func (pl *Runner) contentOf(ctx context.Context, rec *catalog.Record, known map[string]string) (map[string]string, error) {
	paths := map[string]bool{}
	for path := range known {
		paths[path] = true
	}
	changes, err := pl.engine.Compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			if p.Workspace && !c.TimeOnly() {
				paths[c.Path] = true
			}
		}
	}
	changes.Close()
	view, err := pl.openWorkspace(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	l := baseline.RootedReader{Root: view}
	defer l.Close()
	content := make(map[string]string, len(paths))
	for path := range paths {
		n, err := l.Node(path)
		if err != nil {
			return nil, errs.With("looking at", filepath.Join(rec.Workspace, path), err)
		}
		content[path] = digestOf(n)
	}
	return content, nil
}

// digestOf returns a text that is equal for n, the metadata of a file, as long as nobody changes the file. It
// leaves out the times of a directory, which change with its entries. nil means no file.
func digestOf(n *diff.Node) string {
	if n == nil {
		return "-"
	}
	text := fmt.Sprint(n.Mode, n.UID, n.GID)
	if !n.Mode.IsDir() {
		text += fmt.Sprint(" ", n.Size, n.MTime.UnixNano(), n.CTime.UnixNano(), n.Rdev, n.Target)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

// openWorkspace opens the workspace, as it is in the fork of the sandbox to be promoted, for reading; the
// caller closes it.
func (pl *Runner) openWorkspace(ctx context.Context, rec *catalog.Record) (*os.File, error) {
	t, ok := compare.WorkspaceTree(rec)
	if !ok {
		return nil, &errs.Error{Op: "opening", Path: rec.Workspace, Kind: errs.ErrNotFound, Err: errors.New("it lies in no tree of the sandbox")}
	}
	b, err := pl.engine.Host.BackendOf(ctx, t)
	if err != nil {
		return nil, err
	}
	f, err := b.LookupFork(ctx, t.Fork)
	if err != nil {
		return nil, err
	}
	dirs, err := hostfs.OpenDir(ctx, isolate.OpenViews, b, t.Path, rec.Workspace, false, f.View)
	if err != nil {
		return nil, err
	}
	return dirs[0], nil
}

// sameContent returns an error if the sandbox has changed since the promotion p through stages began, because
// the checks of the stages ran on the earlier files. Errors: ErrNotFound (the sandbox was removed or
// replaced), ErrDrifted.
func (pl *Runner) sameContent(ctx context.Context, p *stages.Pipeline) error {
	h, err := pl.engine.Supervise.HoldAny(ctx, p.Sandbox)
	if err != nil {
		return err
	}
	defer h.Release()
	if h.ID != p.SandboxID {
		return stages.Error(p, errs.ErrNotFound, errors.New("it is gone, and another sandbox has its name"), "snapfs promote --cancel "+p.ID)
	}
	_, thaw, err := pl.engine.Supervise.Freeze(ctx, h)
	if err != nil {
		return err
	}
	defer thaw()
	now, err := pl.contentOf(ctx, h.Record, p.Content)
	if err != nil {
		return err
	}
	var changed []string
	for path, digest := range now {
		if p.Content[path] != digest {
			changed = append(changed, pathlist.Printable(path))
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	const most = 5
	text := strings.Join(changed[:min(len(changed), most)], ", ")
	if more := len(changed) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return stages.Error(p, errs.ErrDrifted, errors.New("the sandbox has changed since this promotion began, so no stage has checked it: "+text),
		"snapfs promote --cancel "+p.ID, "snapfs promote "+p.Sandbox+" --to "+p.To)
}
