package gitrepo

import (
	"container/heap"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Commit reads and parses a commit. For a commit at the boundary of a shallow clone it leaves out the
// parents, which the repository lacks.
func (r *Repo) Commit(id ID) (*CommitData, error) {
	o, err := r.Object(id, Commit)
	if err != nil {
		return nil, err
	}
	c, err := ParseCommit(o.Data, false)
	if err == nil && r.shallow[id] {
		c.Parents = nil
	}
	return c, err
}

// Flags of a commit while [Relate] compares the histories of two commits, the left and the right one. left
// and right mean that this one has the commit as an ancestor. stale means that the commit lies behind a
// common ancestor and no longer matters.
const (
	left uint8 = 1 << iota
	right
	stale // an ancestor of a common ancestor
)

// A Relation is how the histories of two commits, the left and the right one, are related. [Relate] computes
// it.
type Relation struct {
	// Bases are the best common ancestors, newest first.
	Bases []ID
	// New are the commits that only the right side has, newest first.
	New []NewCommit
}

// A NewCommit is a parsed commit with its ID. A [Relation] lists as such the commits that its right side has
// and its left side lacks.
type NewCommit struct {
	ID ID
	*CommitData
}

// maxWalk is the largest number of commits that [Relate] reads before it returns ErrTooLarge. It bounds the
// work that a hostile repository can cause.
const maxWalk = 2_000_000

// Relate compares the histories of the left commit a and the right commit b: it finds their best common
// ancestors and the commits that only b has. of reads a commit of either side. A zero a has no history, so
// that every ancestor of b is new. Cost: it reads the commits between a, b and their best common ancestors.
func Relate(of func(ID) (*CommitData, error), a, b ID) (Relation, error) {
	w := walk{of: of, flags: map[ID]uint8{}, commits: map[ID]*CommitData{}}
	var rel Relation
	if !a.Zero() {
		if err := w.add(a, left); err != nil {
			return rel, err
		}
	}
	if err := w.add(b, right); err != nil {
		return rel, err
	}
	var order []ID
	var common []ID
	for w.interesting() {
		id := heap.Pop(&w.queue).(queued).id //nolint:errcheck // nothing else is in it
		flags := w.flags[id]
		order = append(order, id)
		if flags == left|right {
			common = append(common, id)
			flags |= stale
		}
		if len(order) > maxWalk {
			return rel, fmt.Errorf("history of more than %d commits: %w", maxWalk, ErrTooLarge)
		}
		for _, p := range w.commits[id].Parents {
			if err := w.add(p, flags); err != nil {
				return rel, err
			}
		}
	}
	seen := map[ID]bool{}
	for _, id := range order {
		if w.flags[id] == right && !seen[id] {
			rel.New = append(rel.New, NewCommit{id, w.commits[id]})
		}
		seen[id] = true
	}
	for _, id := range common {
		if w.flags[id]&stale == 0 && !slices.Contains(rel.Bases, id) {
			rel.Bases = append(rel.Bases, id)
		}
	}
	return rel, nil
}

type walk struct {
	of      func(ID) (*CommitData, error)
	flags   map[ID]uint8
	commits map[ID]*CommitData
	queue   queue
}

// add sets flags of the commit id, which say from which of the two compared commits [Relate] has reached it.
// If any of them is new, add queues the commit, because its parents then need these flags too.
func (w *walk) add(id ID, flags uint8) error {
	before := w.flags[id]
	if before|flags == before {
		return nil
	}
	c := w.commits[id]
	if c == nil {
		var err error
		if c, err = w.of(id); err != nil {
			return err
		}
		w.commits[id] = c
	}
	w.flags[id] = before | flags
	heap.Push(&w.queue, queued{id, c.When().Unix()})
	return nil
}

// interesting reports whether a queued commit can still change the result of [Relate]: one that does not lie
// behind a common ancestor of the compared commits.
func (w *walk) interesting() bool {
	for _, q := range w.queue {
		if w.flags[q.id]&stale == 0 {
			return true
		}
	}
	return false
}

type queued struct {
	id   ID
	when int64
}

// A queue is a heap (see package container/heap) of the commits that [Relate] still has to visit, the newest
// first.
type queue []queued

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].when > q[j].when }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push appends a commit to the heap's slice, for package heap.
func (q *queue) Push(x any) { *q = append(*q, x.(queued)) } //nolint:errcheck // as heap demands

// Pop removes and returns the last element of the heap's slice, for package heap.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// FromBoth returns a function for [Relate] that reads a commit from the first repository, or if that lacks it
// from the second.
func FromBoth(first, second *Repo) func(ID) (*CommitData, error) {
	return func(id ID) (*CommitData, error) {
		c, err := first.Commit(id)
		if errors.Is(err, fs.ErrNotExist) {
			return second.Commit(id)
		}
		return c, err
	}
}
