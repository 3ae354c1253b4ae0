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

// States makes frozen states of trees with ZFS snapshots, for package fusecow, whose interface Freezer it
// implements. An ordinary user makes them with root's grants (zfs-allow(8)) and reads them in .zfs, where the
// kernel mounts them on demand. The name of a state is that of the snapshot, a slash, and the path from the
// root of the dataset to the tree.
type States struct{}

// Holds returns the reason why this process cannot snapshot the tree's dataset, or nil. Cost: a run
// of zfs(8). Errors: ErrNotFound, ErrNotSupported with the missing grants.
func (States) Holds(ctx context.Context, tree string) error {
	return fail("opening", "", delegated(ctx, tree))
}

// Name returns a new unique name for a frozen state of tree. It creates nothing. Errors: ErrNotFound,
// ErrNotSupported.
func (States) Name(tree string) (string, error) {
	src, err := findSource(tree)
	if err == nil {
		err = checkName(src)
	}
	return snapshotName(src.dataset, unique()) + "/" + src.within, fail("capturing", "", err)
}

// Freeze makes the ZFS snapshot called state of the tree's dataset, with snapfs's mark, and places a hold:
// two transaction groups. A process killed in between leaves a complete snapshot without a hold. Errors:
// ErrNoSpace, ErrDenied, ErrCorrupt.
func (States) Freeze(ctx context.Context, tree, state string) error {
	s, err := parseState(state)
	if err == nil {
		err = checkRunning(s.dataset)
	}
	if err == nil {
		err = snap(ctx, []string{tree}, []string{s.name()}, s.unique)
	}
	if err == nil {
		err = hold(ctx, s.name())
	}
	return fail("capturing", "", err)
}

// Path returns the path at which the kernel mounts the ZFS snapshot of a state on demand, in the first mount
// namespace and in those that receive its mounts. Cost: the list of mounts. Errors: ErrNotSupported (the
// dataset is not mounted).
func (States) Path(state string) (string, error) {
	s, err := parseState(state)
	root := ""
	if err == nil {
		root, err = rootOf(s.dataset)
	}
	return path.Join(root, ".zfs/snapshot", tag+"-"+s.unique, s.within), fail("looking up", "", err)
}

// Thaw releases and destroys the ZFS snapshots of these states, if they have snapfs's mark. It returns as
// busy those in use or on a pool that is not imported; a snapshot with a clone is destroyed with the clone.
// Cost: two runs of zfs(8) for each hundred, and one for each dataset. Errors: ErrDenied, ErrCorrupt (not a
// name of snapfs, or a suspended pool); some snapshots may then be destroyed.
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

// A state is the name of a frozen state, split into the dataset, the snapshot's unique part and the path of the
// tree in the dataset.
type state struct{ dataset, unique, within string }

func (s state) name() string { return snapshotName(s.dataset, s.unique) }

func parseState(text string) (state, error) {
	dataset, rest, _ := strings.Cut(text, "@")
	name, within, ok := strings.Cut(rest, "/")
	u, ours := strings.CutPrefix(name, tag+"-")
	if !ok || !ours || u == "" || dataset == "" || within == "" {
		return state{}, corrupt("not the name of a snapshot of snapfs: " + text)
	}
	return state{dataset, u, within}, nil
}

// rootOf returns the path at which the root of a dataset is mounted, below which .zfs shows its snapshots.
// ErrNotSupported: it is not mounted.
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
	return "", &errs.Error{
		Kind: errs.ErrNotSupported, Path: dataset, Err: errors.New("the root of the dataset is not mounted, and its snapshots are read from there"),
		Hints: []string{"sudo zfs mount " + dataset},
	}
}

func thaw(ctx context.Context, states []string) (busy []string, err error) {
	var all []trashEntry
	known := map[string]string{}
	for _, text := range states {
		s, err := parseState(text)
		if err == nil {
			err = checkRunning(s.dataset)
		}
		if err != nil {
			return nil, err
		}
		if checkImported(s.dataset) != nil { // the entry stays until the pool is imported
			busy = append(busy, text)
			continue
		}
		known[s.name()] = text
		all = append(all, trashEntry{mark: mark{dataset: s.name(), unique: s.unique}})
	}
	names, err := existing(ctx, all)
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

// destroySnapshots destroys the snapshots names of a dataset in one transaction, or one by one if any of them
// is in use. It returns those in use.
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
