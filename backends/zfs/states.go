//go:build linux

package zfs

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/mount"
)

// States are snapshots of datasets that an ordinary user takes, by what root has granted
// (zfs-allow(8)), and reads beneath .zfs, where the kernel mounts them for whoever looks. A state is
// called as the snapshot is, a slash, and the way from the root of the dataset to the tree.
type States struct{}

// Holds says why this process cannot take snapshots of what holds the tree, or nil. Cost:
// a run of zfs(8). Errors: ErrNotFound, ErrNotSupported, with the grants that are missing.
func (States) Holds(ctx context.Context, tree string) error {
	return fail("opening", "", delegated(ctx, tree))
}

// Name answers with a name that nothing has. It makes nothing. Errors: ErrNotFound, ErrNotSupported.
func (States) Name(tree string) (string, error) {
	src, err := findSource(tree)
	if err == nil {
		err = fits(src)
	}
	return snapshotName(src.dataset, unique()) + "/" + src.within, fail("capturing", "", err)
}

// Freeze takes the snapshot, with our mark, and holds it: two transaction groups. Killed in
// between, it leaves one that is whole and not held. Errors: ErrNoSpace, ErrDenied, ErrCorrupt.
func (States) Freeze(ctx context.Context, tree, state string) error {
	s, err := parseState(state)
	if err == nil {
		err = running(s.dataset)
	}
	if err == nil {
		err = snap(ctx, []string{tree}, []string{s.name()}, s.unique)
	}
	if err == nil {
		err = hold(ctx, s.name())
	}
	return fail("capturing", "", err)
}

// Path is where the kernel mounts the snapshot when somebody opens it, in the first mount namespace and
// those that get its mounts. Cost: the list of mounts. Errors: ErrNotSupported (the dataset is not mounted).
func (States) Path(state string) (string, error) {
	s, err := parseState(state)
	root := ""
	if err == nil {
		root, err = rootOf(s.dataset)
	}
	return path.Join(root, ".zfs/snapshot", tag+"-"+s.unique, s.within), fail("looking up", "", err)
}

// Thaw releases the snapshots that are there with our mark, and destroys them. Those of a pool that is not
// imported are busy. A hundred cost a run of
// zfs(8) to ask, one to release, and one for each dataset. One with a clone goes with that. Errors: ErrDenied,
// ErrCorrupt (no name of ours, or a suspended pool); some may have gone then.
func (States) Thaw(ctx context.Context, states []string) (busy []string, err error) {
	for part := range slices.Chunk(states, together) {
		used, err := thaw(ctx, part)
		if err != nil {
			return nil, fail("sweeping", "", err)
		}
		busy = append(busy, used...)
	}
	return busy, nil
}

// A state is a snapshot's name in parts.
type state struct{ dataset, unique, within string }

func (s state) name() string { return snapshotName(s.dataset, s.unique) }

func parseState(text string) (state, error) {
	dataset, rest, _ := strings.Cut(text, "@")
	name, within, ok := strings.Cut(rest, "/")
	u, ours := strings.CutPrefix(name, tag+"-")
	if !ok || !ours || u == "" || dataset == "" || within == "" {
		return state{}, corrupt("this is no name of a snapshot of ours: " + text)
	}
	return state{dataset, u, within}, nil
}

// rootOf is where a dataset is mounted whole.
func rootOf(dataset string) (string, error) {
	mounts, err := mount.List()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.Type == "zfs" && m.Source == dataset && m.Root == "/" {
			return m.Path, nil
		}
	}
	return "", &problem{
		kind: errs.ErrNotSupported, path: dataset, why: "it is not mounted here as a whole, and its snapshots are read beneath that",
		hints: []string{"sudo zfs mount " + dataset},
	}
}

func thaw(ctx context.Context, states []string) (busy []string, err error) {
	var all []dead
	known := map[string]string{}
	for _, text := range states {
		s, err := parseState(text)
		if err == nil {
			err = running(s.dataset)
		}
		if err != nil {
			return nil, err
		}
		if imported(s.dataset) != nil { // it goes when the pool is back
			busy = append(busy, text)
			continue
		}
		known[s.name()] = text
		all = append(all, dead{mark: mark{dataset: s.name(), unique: s.unique}})
	}
	names, err := own(ctx, all)
	if err != nil || len(names) == 0 {
		return busy, err
	}
	if err := fault.Point(ctx, "release the snapshots"); err != nil {
		return nil, err
	}
	if err := release(ctx, names); err != nil {
		return nil, err
	}
	if err := fault.Point(ctx, "destroy the snapshots"); err != nil {
		return nil, err
	}
	of := map[string][]string{}
	for _, name := range names {
		dataset, short, _ := strings.Cut(name, "@")
		of[dataset] = append(of[dataset], short)
	}
	for dataset, list := range of {
		used, err := destroySnapshots(ctx, dataset, list)
		if err != nil {
			return nil, err
		}
		for _, name := range used {
			busy = append(busy, known[dataset+"@"+name])
		}
	}
	return busy, nil
}

// destroySnapshots destroys snapshots of a dataset, in one transaction where nobody uses any of them,
// otherwise one after the other, and answers with those that are in use.
func destroySnapshots(ctx context.Context, dataset string, names []string) (busy []string, err error) {
	_, err = zfsCmd(ctx, "destroy", "-d", dataset+"@"+strings.Join(names, ","))
	switch {
	case err == nil, errors.Is(err, errs.ErrNotFound):
		return nil, nil
	case !errors.Is(err, errs.ErrBusy):
		return nil, err
	case len(names) == 1:
		return names, nil
	}
	for _, name := range names {
		used, err := destroySnapshots(ctx, dataset, []string{name})
		if err != nil {
			return nil, err
		}
		busy = append(busy, used...)
	}
	return busy, nil
}
