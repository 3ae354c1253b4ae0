package catalog

import (
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
)

// Format is the version of the state directory this program reads and writes.
// A directory of a newer one is refused, never rewritten.
const Format = 1

// State is where a sandbox is in its life.
type State string

// The states of a sandbox. Creating is only seen when a command died half-way:
// the next command takes such a sandbox away.
const (
	Creating State = "creating"
	Ready    State = "ready"
)

// A Record is all that is known of one sandbox.
type Record struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	// Life is how long it had lived when that was last noted, nil for never.
	Life *Life `json:"life,omitempty"`
	// Workspace is the directory that commands start in and that paths in
	// output are relative to: absolute, on the real machine.
	Workspace string `json:"workspace"`
	// Ephemeral: belongs to the command that made it, and goes with it.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Origin is the name of the sandbox it was forked from, or "".
	Origin string `json:"origin,omitempty"`
	// Trees are what it sees of the real machine, "/" first.
	Trees []Tree `json:"trees"`
	// Marks are its named states, oldest first.
	Marks []Mark `json:"snapshots,omitempty"`
	// At is the mark that its files were last at, or "".
	At string `json:"at,omitempty"`
	// Policy is what its processes may do.
	Policy Policy `json:"policy"`
	// Hit is the limit that ended something in it last, nil for none.
	Hit *Hit `json:"hit,omitempty"`
	// Paused is why what runs in it stands still, nil where it does not.
	Paused *Hit `json:"paused,omitempty"`
	// Proof is how its walls were tried last, nil for never.
	Proof *Proof `json:"proof,omitempty"`
	// Ended is the limit that ended it for good, while its states stay; nil for none.
	Ended *Hit `json:"ended,omitempty"`
	// Keeper is the process that holds its namespaces, when one does.
	Keeper *proc.Process `json:"keeper,omitempty"`
	// Refreshed counts how often it got another base. What is kept of a base lies
	// in the directory bases/REFRESHED beside the record.
	Refreshed int `json:"refreshed,omitempty"`
	// Past are bases it had before. Other sandboxes may have been given them too.
	Past []snapshot.ID `json:"past_bases,omitempty"`
	// Returning is what is under way while it is taken back to a state with processes in it.
	Returning *Returning `json:"returning,omitempty"`
	// Lent: the bases serve as those of sandboxes that were forked from it.
	Lent bool `json:"lent,omitempty"`
	// Next numbers the snapshots and forks made for it.
	Next int `json:"next"`
}

// A Returning says to which mark, or with "" to its base, a sandbox is taken back, and which
// snapshots, in the order of its trees, hold what it was before. Until all of them are Kept nothing has gone back.
type Returning struct {
	Mark   string        `json:"mark"`
	Before []snapshot.ID `json:"before"`
	Kept   bool          `json:"kept,omitempty"`
}

// A Tree is one of a sandbox's trees.
type Tree struct {
	// Path is where it lies, on the real machine and in the sandbox.
	Path string `json:"path"`
	// Driver is the name of the backend that holds it.
	Driver string `json:"driver"`
	// Reason says why this driver was chosen.
	Reason string `json:"reason,omitempty"`
	// Base is the snapshot the sandbox began as, and Fork its writable tree.
	Base snapshot.ID     `json:"base"`
	Fork snapshot.ForkID `json:"fork"`
	// Taken is the instant of the base; Frozen whether it keeps still.
	Taken  time.Time `json:"taken"`
	Frozen bool      `json:"frozen"`
}

// A Mark is a named state of a sandbox.
type Mark struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
	// Parent is the mark that the sandbox was last at, or "".
	Parent string `json:"parent,omitempty"`
	// IDs holds the snapshot of each tree, in the order of Record.Trees.
	IDs []snapshot.ID `json:"ids"`
	// Base is what it is the difference to, where that is not the base that the
	// sandbox has now.
	Base *Base `json:"base,omitempty"`
	// Sent is what the state is called by everybody that has it, where it came from
	// another machine.
	Sent string `json:"sent,omitempty"`
	// Places are names in the workspace that are there because something is mounted on this
	// machine, and were not in what was sent.
	Places []string `json:"places,omitempty"`
}

// Identity is what a state is called on every machine that it is sent to.
func (m Mark) Identity() string {
	if m.Sent != "" || len(m.IDs) == 0 {
		return m.Sent
	}
	return string(m.IDs[0])
}

// A Base is what a sandbox's trees began as.
type Base struct {
	// Refreshed is what the record's was while it had this base.
	Refreshed int `json:"refreshed"`
	// Trees are in the order of Record.Trees.
	Trees []TreeBase `json:"trees"`
}

// A TreeBase is the part of a [Tree] that a refresh replaces.
type TreeBase struct {
	Base   snapshot.ID `json:"base"`
	Taken  time.Time   `json:"taken"`
	Frozen bool        `json:"frozen"`
}

// Base is the one that the sandbox has now.
func (r *Record) Base() *Base {
	b := &Base{Refreshed: r.Refreshed}
	for _, t := range r.Trees {
		b.Trees = append(b.Trees, TreeBase{t.Base, t.Taken, t.Frozen})
	}
	return b
}

// SetBase gives the sandbox another base: one that a mark had, or a new one. The
// marks keep theirs.
func (r *Record) SetBase(b *Base) {
	now := r.Base()
	for i := range r.Marks {
		if r.Marks[i].Base == nil {
			r.Marks[i].Base = now
		} else if r.Marks[i].Base.Refreshed == b.Refreshed {
			r.Marks[i].Base = nil
		}
	}
	r.Refreshed = b.Refreshed
	for i, t := range b.Trees {
		if old := r.Trees[i].Base; old != t.Base && !slices.Contains(r.Past, old) {
			r.Past = append(r.Past, old)
		}
		r.Trees[i].Base, r.Trees[i].Taken, r.Trees[i].Frozen = t.Base, t.Taken, t.Frozen
	}
}

// HasBase reports whether a snapshot is, or was, a base of the sandbox.
func (r *Record) HasBase(id snapshot.ID) bool {
	return slices.Contains(r.Past, id) || slices.ContainsFunc(r.Trees, func(t Tree) bool { return t.Base == id })
}

// Bases yields the snapshots that the sandbox, or a mark of it, is the difference
// to. Some may be told twice.
func (r *Record) Bases() iter.Seq[snapshot.ID] {
	return func(yield func(snapshot.ID) bool) {
		for _, t := range r.Trees {
			if !yield(t.Base) {
				return
			}
		}
		for _, m := range r.Marks {
			if m.Base == nil {
				continue
			}
			for _, t := range m.Base.Trees {
				if !yield(t.Base) {
					return
				}
			}
		}
	}
}

// Generations are the values of Refreshed whose base the sandbox or a mark has.
func (r *Record) Generations() []int {
	all := []int{r.Refreshed}
	for _, m := range r.Marks {
		if m.Base != nil && !slices.Contains(all, m.Base.Refreshed) {
			all = append(all, m.Base.Refreshed)
		}
	}
	return all
}

// Policy is what a sandbox's processes may see and do beyond the strict
// default.
type Policy struct {
	// Network is "none" or "host".
	Network string `json:"network"`
	// Expose names paths that are shown although they are secrets; Env names
	// variables that are passed although they look like secrets.
	Expose []string `json:"expose,omitempty"`
	Env    []string `json:"env,omitempty"`
	// Hide names paths to mask beyond the default.
	Hide []string `json:"hide,omitempty"`
	// Limits are how much its processes may use.
	Limits Limits `json:"limits,omitzero"`
	// BestEffort: run with less isolation than asked for, and say so.
	BestEffort bool `json:"best_effort,omitempty"`
	// Prove: before anything else runs in it, its walls are tried, each time that it starts.
	Prove bool `json:"prove,omitempty"`
	// Profile is the one that the rest comes from, in part; nil for none.
	Profile *ProfileUse `json:"profile,omitempty"`
}

// A ProfileUse says what a profile had to do with a policy.
type ProfileUse struct {
	// Path is where it was read.
	Path string `json:"path"`
	// Found: nobody has named it, so it could only tighten.
	Found bool `json:"found,omitempty"`
	// Taken is what holds because of it, as "memory 1G"; Left is what it says besides:
	// a flag said otherwise, or it was only found, and this opens.
	Taken []string `json:"taken,omitempty"`
	Left  []string `json:"left,omitempty"`
}

// Set reports whether a limit has this value because of the profile. There may be none.
func (u *ProfileUse) Set(limit, value string) bool {
	return u != nil && slices.Contains(u.Taken, limit+" "+value)
}

// A Proof says which walls of a sandbox were tried from inside, and what came of it.
type Proof struct {
	When time.Time     `json:"when"`
	Took time.Duration `json:"took_ns"`
	// Held are the names of the walls that held, Crossed those that did not.
	Held    []string `json:"held"`
	Crossed []Wall   `json:"crossed,omitempty"`
}

// A Wall is one that was tried.
type Wall struct {
	Name     string `json:"name"`
	Tried    string `json:"tried"`
	Happened string `json:"happened"`
}

// Mark finds a named state.
func (r *Record) Mark(name string) (Mark, bool) {
	for _, m := range r.Marks {
		if m.Name == name {
			return m, true
		}
	}
	return Mark{}, false
}

// NewSnapshot answers with an id for a further snapshot of this sandbox. It is
// taken for good once the record is saved.
func (r *Record) NewSnapshot() snapshot.ID { return snapshot.ID(r.number("s")) }

// NewFork does for forks what [Record.NewSnapshot] does for snapshots.
func (r *Record) NewFork() snapshot.ForkID { return snapshot.ForkID(r.number("f")) }

func (r *Record) number(kind string) string {
	r.Next++
	return r.id(kind, r.Next)
}

func (r *Record) id(kind string, n int) string { return r.ID + "-" + kind + strconv.Itoa(n) }

// Numbers yields every snapshot and fork id that was ever numbered for the
// sandbox, whether or not there is, or was, such a one.
func (r *Record) Numbers() iter.Seq2[snapshot.ID, snapshot.ForkID] {
	return func(yield func(snapshot.ID, snapshot.ForkID) bool) {
		for n := 1; n <= r.Next; n++ {
			if !yield(snapshot.ID(r.id("s", n)), snapshot.ForkID(r.id("f", n))) {
				return
			}
		}
	}
}

// Owner is the id of the sandbox that a snapshot or fork was numbered for.
func Owner(id string) string {
	owner, _, _ := strings.Cut(id, "-")
	return owner
}

// Owns reports whether a snapshot was numbered for this sandbox.
func (r *Record) Owns(id snapshot.ID) bool { return Owner(string(id)) == r.ID }

func encode(r *Record) ([]byte, error) {
	r.Format = Format
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

func decode(path string, data []byte) (*Record, error) {
	r := new(Record)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, &errs.Error{
			Op: "reading", Path: path, Kind: errs.ErrCorrupt, Err: err,
			Hints: []string{"snapfs rm " + filepath.Base(filepath.Dir(path)) + "   # with everything in it"},
		}
	}
	if r.Format > Format {
		return nil, newer(path, r.Format)
	}
	return r, nil
}

func newer(path string, format int) error {
	return &errs.Error{
		Op: "reading", Path: path, Kind: errs.ErrNotSupported,
		Err: fmt.Errorf("made by a newer snapfs (format %d, this one knows %d)", format, Format),
	}
}
