package baseline

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Agree finds the recorded paths at which the sandbox and the real tree have made the same change, and makes the
// sandbox's state the base of its later changes there. It looks below root, a directory of the real tree, and compares
// mine, the sandbox's tree, with real, by the options opt. A path that the comparison leaves out, that a mount covers or
// that cannot be read keeps its base: there, nothing shows that both are the same. So does a path that both have removed:
// where the base is live, the sandbox may see what the user makes there later, and change it. So does a path at which the
// sandbox has no file of its own, by the change time, and sees the real one: that is no change of the sandbox. Agree calls
// note before it replaces an entry. It reports an error as a notice: the cost is at most a conflict later. The caller saves
// the baseline. Cost: two system calls for each entry, and the content of files that the sandbox has changed since.
func (k *Baseline) Agree(ctx context.Context, root string, real *os.File, mine *RootedReader, opt diff.Options, note func(k *Baseline, abs string), notice func(string)) {
	if err := k.agree(ctx, root, real, mine, opt, note); err != nil {
		notice("which files the sandbox and " + root + " have made the same was not recorded: " + err.Error())
	}
}

// agree does what Agree does, but returns the error.
func (k *Baseline) agree(ctx context.Context, root string, real *os.File, mine *RootedReader, opt diff.Options, note func(k *Baseline, abs string)) error {
	theirs := RootedReader{Root: real}
	defer theirs.Close()
	nodes := map[string]*diff.Node{}
	var touches []snapshot.Candidate
	for abs, n := range k.Nodes {
		path, below := strings.CutPrefix(abs, strings.TrimSuffix(root, "/")+"/")
		if !below || skips(&opt, path) {
			continue
		}
		now, err := mine.Node(path)
		if err != nil || n.Unknown == "" && sameState(n.Node, now) {
			continue
		}
		there, err := theirs.Node(path)
		if err != nil || now == nil || there == nil || now.CTime.Equal(there.CTime) || !mine.onRootMount(path) || !theirs.onRootMount(path) {
			continue
		}
		nodes[path] = now
		touches = append(touches, snapshot.Candidate{Path: path})
	}
	if len(touches) == 0 {
		return nil
	}
	opt.Fold = 0 // a path in a renamed directory that is not listed would look the same
	changes, err := diff.At(ctx, real, mine.Root, touches, opt)
	if err != nil {
		return err
	}
	for i := range changes {
		delete(nodes, changes[i].Path)
	}
	for _, path := range slices.Sorted(maps.Keys(nodes)) {
		abs := strings.TrimSuffix(root, "/") + "/" + path
		note(k, abs)
		if err := k.Promote(abs, &diff.Change{Path: path, Kind: diff.Modified, New: nodes[path]}, mine); err != nil {
			return err
		}
	}
	return nil
}

// skips reports whether a comparison by the options opt leaves out a path, or a directory above it.
func skips(opt *diff.Options, path string) bool {
	for ; opt.Skip != nil && path != "."; path = filepath.Dir(path) {
		if opt.Skip(path) {
			return true
		}
	}
	return false
}

// sameState reports whether two nodes of one path are one state of one file.
func sameState(a, b *diff.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ino == b.Ino && a.Mode == b.Mode && (a.Mode.IsDir() || a.CTime.Equal(b.CTime))
}
