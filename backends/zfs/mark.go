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
	// property is the ZFS user property that marks a dataset or snapshot as one of snapfs. Its value is the
	// unique number that is also a part of the name.
	property = "snapfs:mark"
	// homeMark is the value of snapfs's user property on .snapfs, the dataset that contains the forks.
	homeMark = "home"
	tag      = "snapfs"
	homeName = ".snapfs"
)

// uniqueMax is the length of the longest unique number in the name of a dataset: 64 bits in base 36.
const uniqueMax = 13

func unique() string { return strconv.FormatUint(rand.Uint64(), 36) }

func forkName(dataset, unique string) string     { return dataset + "/" + homeName + "/" + unique }
func snapshotName(dataset, unique string) string { return dataset + "@" + tag + "-" + unique }
func isSnapshot(dataset string) bool             { return strings.Contains(dataset, "@") }
func marked(unique string) string                { return property + "=" + unique }
func home(fork string) string                    { return fork[:strings.LastIndexByte(fork, '/')] }

// A mark is the text file that describes a snapshot or fork. It is written before the ZFS dataset is made:
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
	kind    string // the parent directory: snapshots or forks
	id      string
	dataset string // the name of the dataset or snapshot
	unique  string // the value of its property
	source  string // the dataset of the capture that it descends from
	tree    string // the captured tree that it descends from
	within  string // the path of the tree in the dataset
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
		return m, corrupt("the mark has a format that this version cannot read")
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
			return m, corrupt("the mark has an invalid value of " + key)
		}
	}
	// The check of the unique number prevents a damaged mark from naming another dataset.
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
