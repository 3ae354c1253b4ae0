//go:build linux

package zfs

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

const (
	// property is the user property that says that something is ours; its
	// value is the unique number that is in the name too.
	property = "snapfs:mark"
	// homeMark is its value on the dataset that holds the forks.
	homeMark = "home"
	tag      = "snapfs"
	homeName = ".snapfs"
)

// uniqueMax is how long a unique number may be: 64 bits to the base 36.
const uniqueMax = 13

func unique() string { return strconv.FormatUint(rand.Uint64(), 36) }

func forkName(dataset, unique string) string     { return dataset + "/" + homeName + "/" + unique }
func snapshotName(dataset, unique string) string { return dataset + "@" + tag + "-" + unique }
func isSnapshot(dataset string) bool             { return strings.Contains(dataset, "@") }
func marked(unique string) string                { return property + "=" + unique }
func home(fork string) string                    { return fork[:strings.LastIndexByte(fork, '/')] }

// A mark is what is known of an entry. It is written before the dataset is made,
// and is text for people:
//
//	snapfs zfs 1
//	one of forks
//	id f1
//	dataset "tank/home/.snapfs/1hq4…"
//	unique 1hq4…
//	source "tank/home"
//	tree "/home/ann/work"
//	within "ann/work"
//	base s1
//	taken 2026-11-20T19:09:26.123456789Z
type mark struct {
	kind    string // the directory it belongs in: snapshots or forks
	id      string
	dataset string // the dataset or snapshot that holds it
	unique  string // what its property has to say
	source  string // the dataset that was captured, at the beginning of the line
	tree    string // what was captured, at the beginning of the line
	within  string // where it lies in the dataset
	base    string // of a fork: the snapshot it was forked from or last sealed into
	taken   time.Time
}

const markFormat = "snapfs zfs 1\n"

func (m mark) text() string {
	return markFormat + fmt.Sprintf("one of %s\nid %s\ndataset %q\nunique %s\nsource %q\ntree %q\nwithin %q\nbase %s\ntaken %s\n",
		m.kind, m.id, m.dataset, m.unique, m.source, m.tree, m.within, m.base, m.taken.UTC().Format(time.RFC3339Nano))
}

func parseMark(text string) (m mark, err error) {
	body, ok := strings.CutPrefix(text, markFormat)
	if !ok || !strings.HasSuffix(body, "\n") {
		return m, corrupt("the mark is not one that this version can read")
	}
	for row := range strings.Lines(body) {
		key, value, _ := strings.Cut(strings.TrimSuffix(row, "\n"), " ")
		switch key {
		case "one":
			m.kind = strings.TrimPrefix(value, "of ")
		case "id":
			m.id = value
		case "dataset":
			m.dataset, err = strconv.Unquote(value)
		case "unique":
			m.unique = value
		case "source":
			m.source, err = strconv.Unquote(value)
		case "tree":
			m.tree, err = strconv.Unquote(value)
		case "within":
			m.within, err = strconv.Unquote(value)
		case "base":
			m.base = value
		case "taken":
			m.taken, err = time.Parse(time.RFC3339Nano, value)
		}
		if err != nil {
			return m, corrupt("the mark cannot be read at " + key)
		}
	}
	// The unique number keeps a damaged mark from naming anything else.
	if m.unique == "" || !strings.HasSuffix(m.dataset, m.unique) || m.tree == "" || m.within == "" || m.taken.IsZero() {
		return m, corrupt("the mark is incomplete")
	}
	return m, nil
}

func (b *Backend) view(kind, id, within string) snapshot.View {
	path := b.dir + "/" + kind + "/" + id + "/" + treeName
	if within != "." {
		path += "/" + within
	}
	return snapshot.View{Path: path}
}

func (b *Backend) snapshotOf(m mark) snapshot.Snapshot {
	return snapshot.Snapshot{
		ID: snapshot.ID(m.id), Tree: snapshot.Tree{Path: m.tree}, Taken: m.taken, Frozen: true,
		View: b.view(snapshots, m.id, m.within),
	}
}

func (b *Backend) forkOf(m mark) snapshot.Fork {
	return snapshot.Fork{ID: snapshot.ForkID(m.id), Base: snapshot.ID(m.base), View: b.view(forks, m.id, m.within)}
}
