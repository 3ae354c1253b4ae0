package baseline

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Agree finds the recorded paths at which the sandbox and the real tree have made the same change, and makes the
// sandbox's state the base of its later changes there. It looks below root, a directory of the real tree, and compares
// mine, the sandbox's tree, with real, by the options opt. It calls note before it replaces an entry. The caller saves
// the baseline. Cost: two system calls for each entry, and the content of files that the sandbox has changed since.
func (k *Baseline) Agree(ctx context.Context, root string, real *os.File, mine *RootedReader, opt diff.Options, note func(k *Baseline, abs string)) error {
	nodes := map[string]*diff.Node{}
	var touches []snapshot.Candidate
	for abs, n := range k.Nodes {
		path, below := strings.CutPrefix(abs, strings.TrimSuffix(root, "/")+"/")
		if !below {
			continue
		}
		now, err := mine.Node(path)
		if err != nil {
			return err
		}
		if n.Unknown == "" && sameState(n.Node, now) {
			continue
		}
		nodes[path] = now
		touches = append(touches, snapshot.Candidate{Path: path})
	}
	if len(touches) == 0 {
		return nil
	}
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

// sameState reports whether two nodes of one path are one state of one file.
func sameState(a, b *diff.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ino == b.Ino && a.Mode == b.Mode && (a.Mode.IsDir() || a.CTime.Equal(b.CTime))
}
