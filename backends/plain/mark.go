package plain

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// A mark is a text file that identifies a directory as a snapshot or fork of this backend:
//
//	snapfs plain 1
//	fork f1
//	tree "/home/ann/work"
//	base "s1"
//	taken 2026-11-20T19:09:26.123456789Z
type mark struct {
	kind  kind
	id    string
	tree  string    // the captured tree
	base  string    // of a fork: the snapshot it began as
	taken time.Time // of the snapshot, or of the snapshot that the fork began as
}

const markFormat = "snapfs plain 1\n"

func (m mark) text() string {
	return markFormat + fmt.Sprintf("%s %s\ntree %q\nbase %q\ntaken %s\n",
		m.kind.word, m.id, m.tree, m.base, m.taken.UTC().Format(time.RFC3339Nano))
}

// parseMark parses text, the mark that describes the snapshot or fork id. Errors: ErrNotFound (it is of
// another id or kind), ErrCorrupt.
func parseMark(k kind, id, text string) (mark, error) {
	rest, ok := strings.CutPrefix(text, markFormat)
	if !ok {
		return mark{}, &errs.Error{Kind: errs.ErrCorrupt, Err: errors.New("the mark has a format that this version cannot read")}
	}
	m := mark{kind: k}
	var word, taken string
	if _, err := fmt.Sscanf(rest, "%s %s\ntree %q\nbase %q\ntaken %s\n", &word, &m.id, &m.tree, &m.base, &taken); err != nil {
		return mark{}, &errs.Error{Kind: errs.ErrCorrupt, Err: fmt.Errorf("the mark is not readable: %w", err)}
	}
	var err error
	if m.taken, err = time.Parse(time.RFC3339Nano, taken); err != nil {
		return mark{}, &errs.Error{Kind: errs.ErrCorrupt, Err: errors.New("the mark has no time")}
	}
	if word != k.word || m.id != id {
		return mark{}, &errs.Error{Kind: errs.ErrNotFound, Err: errors.New("the mark is of " + word + " " + m.id)}
	}
	return m, nil
}

func (b *backend) snapshotOf(m mark) snapshot.Snapshot {
	return snapshot.Snapshot{
		ID: snapshot.ID(m.id), Tree: snapshot.Tree{Path: m.tree}, Taken: m.taken, Frozen: true,
		View: snapshot.View{Path: b.treePath(snapshots, m.id)},
	}
}

func (b *backend) forkOf(m mark) snapshot.Fork {
	return snapshot.Fork{
		ID: snapshot.ForkID(m.id), Base: snapshot.ID(m.base),
		View: snapshot.View{Path: b.treePath(forks, m.id)},
	}
}
