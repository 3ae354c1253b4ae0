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

// Format is the version of the state directory that this program reads and writes. It refuses a
// newer one and never rewrites it.
const Format = 1

// State is the stage of a sandbox's life.
type State string

// States of a sandbox. Creating is visible only after a command died; the next command removes
// such a sandbox.
const (
	Creating State = "creating"
	Ready    State = "ready"
)

// A Record describes one sandbox.
type Record struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	// Life is the sandbox's age when it was last recorded, nil for never.
	Life *Life `json:"life,omitempty"`
	// Workspace is the directory in which commands start and to which paths in output are
	// relative. It is absolute, on the host.
	Workspace string `json:"workspace"`
	// BareWorkspace is set if the workspace is in no tree: it lay on a read-only filesystem when the
	// sandbox was made, and is shown as it is.
	BareWorkspace bool `json:"bare_workspace,omitempty"`
	// Ephemeral is set if the sandbox is removed when the command that created it ends.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Run describes the run that left the sandbox, nil for a sandbox of another command.
	Run *KeptRun `json:"run,omitempty"`
	// Origin is the name of the sandbox that this one was forked from, or "".
	Origin string `json:"origin,omitempty"`
	// OriginSnapshot is the [NamedSnapshot.Identity] of the origin's snapshot that this sandbox was forked from,
	// or "".
	OriginSnapshot string `json:"origin_snapshot,omitempty"`
	// Trees are the sandbox's views of the host's trees, "/" first.
	Trees []Tree `json:"trees"`
	// Snapshots lists the sandbox's named snapshots, oldest first.
	Snapshots []NamedSnapshot `json:"snapshots,omitempty"`
	// At is the name of the snapshot from which the sandbox's files last started, or "".
	At string `json:"at,omitempty"`
	// Policy is the policy for its processes.
	Policy Policy `json:"policy"`
	// LimitHit is the limit that last ended a command in the sandbox, or nil.
	LimitHit *LimitHit `json:"hit,omitempty"`
	// Paused is why the sandbox is paused, nil if it is not.
	Paused *LimitHit `json:"paused,omitempty"`
	// Proof is the result of the last isolation self-test, or nil.
	Proof *Proof `json:"proof,omitempty"`
	// Ended is the limit that ended the sandbox for good, while its named snapshots stay; nil
	// if it has not ended.
	Ended *LimitHit `json:"ended,omitempty"`
	// Supervisor is the process that owns the sandbox's namespaces, or nil if none runs.
	Supervisor *proc.Process `json:"keeper,omitempty"`
	// Refreshed counts how often the sandbox got a new base. The baseline of a base is in the
	// directory bases/REFRESHED beside the record.
	Refreshed int `json:"refreshed,omitempty"`
	// Past lists the sandbox's earlier bases. Other sandboxes may use them, too.
	Past []snapshot.ID `json:"past_bases,omitempty"`
	// LiveRollback describes a live rollback in progress.
	LiveRollback *LiveRollback `json:"returning,omitempty"`
	// Untouched is set while no process has run in the sandbox and nothing else has changed
	// it.
	Untouched bool `json:"untouched,omitempty"`
	// Lent is set if sandboxes forked from this one use its bases.
	Lent bool `json:"lent,omitempty"`
	// Next is the number for the sandbox's next snapshot or fork.
	Next int `json:"next"`
}

// A KeptRun describes how `snapfs run` left the sandbox of its command.
type KeptRun struct {
	Ended time.Time `json:"ended"`
	// Unclaimed is set if nobody asked to keep the sandbox. RemoveAfter is then the
	// limit remove-after that run set, 0 if the user had set one. Size is the number of bytes
	// that the sandbox stored beyond its base.
	Unclaimed   bool          `json:"unclaimed,omitempty"`
	RemoveAfter time.Duration `json:"remove_after_ns,omitempty"`
	Size        int64         `json:"size,omitempty"`
}

// OwnRemoval reports whether the sandbox's limit remove-after is the one that run set by
// itself.
func (r *Record) OwnRemoval() bool {
	return r.Run != nil && r.Run.RemoveAfter > 0 && r.Policy.Limits.RemoveAfter == r.Run.RemoveAfter
}

// A LiveRollback describes a live rollback to a named snapshot, or to the base for "". Before holds
// the snapshots of the state before it, in the order of the trees. Saved is set
// once all of them exist; the rollback starts then.
type LiveRollback struct {
	To     string        `json:"mark"`
	Before []snapshot.ID `json:"before"`
	Saved  bool          `json:"kept,omitempty"`
}

// A Tree is one of a sandbox's trees.
type Tree struct {
	// Path is the tree's path on the host and in the sandbox.
	Path string `json:"path"`
	// Driver is the name of the tree's backend.
	Driver string `json:"driver"`
	// Reason is why that backend was chosen.
	Reason string `json:"reason,omitempty"`
	// Base is the snapshot that the sandbox started from, and Fork its writable tree.
	Base snapshot.ID     `json:"base"`
	Fork snapshot.ForkID `json:"fork"`
	// Taken is the time of the base; Frozen whether the base is immutable.
	Taken  time.Time `json:"taken"`
	Frozen bool      `json:"frozen"`
	// Mounted is set if a filesystem was mounted at Path when the sandbox was made.
	Mounted bool `json:"mounted,omitempty"`
}

// A NamedSnapshot is a named snapshot of a sandbox.
type NamedSnapshot struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
	// Parent is the named snapshot that the sandbox was at before, or "".
	Parent string `json:"parent,omitempty"`
	// IDs holds the snapshot of each tree, in the order of Record.Trees.
	IDs []snapshot.ID `json:"ids"`
	// Base is the base of the named snapshot, if the sandbox has another base now.
	Base *Base `json:"base,omitempty"`
	// Sent is the identity of a snapshot received from another machine.
	Sent string `json:"sent,omitempty"`
	// MountPoints are names in the workspace that exist because of mounts on this machine, and
	// were not received.
	MountPoints []string `json:"places,omitempty"`
	// Why is why snapfs took the snapshot by itself, nil where somebody asked for it.
	Why *Why `json:"why,omitempty"`
}

// Identity returns the id of the named snapshot that is the same on every machine.
func (m NamedSnapshot) Identity() string {
	if m.Sent != "" || len(m.IDs) == 0 {
		return m.Sent
	}
	return string(m.IDs[0])
}

// A Base is the set of snapshots that a sandbox's trees started from.
type Base struct {
	// Refreshed is the record's Refreshed for this base.
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

// base returns the current base of the sandbox.
func (r *Record) base() *Base {
	b := &Base{Refreshed: r.Refreshed}
	for _, t := range r.Trees {
		b.Trees = append(b.Trees, TreeBase{t.Base, t.Taken, t.Frozen})
	}
	return b
}

// SetBase changes the base of the sandbox, to an earlier one or a new one. Named snapshots
// retain theirs.
func (r *Record) SetBase(b *Base) {
	now := r.base()
	for i := range r.Snapshots {
		if r.Snapshots[i].Base == nil {
			r.Snapshots[i].Base = now
		} else if r.Snapshots[i].Base.Refreshed == b.Refreshed {
			r.Snapshots[i].Base = nil
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

// HasBase reports whether a snapshot is or was a base of the sandbox.
func (r *Record) HasBase(id snapshot.ID) bool {
	return slices.Contains(r.Past, id) || slices.ContainsFunc(r.Trees, func(t Tree) bool { return t.Base == id })
}

// Bases yields the base snapshots of the sandbox and of its named snapshots, possibly repeated.
func (r *Record) Bases() iter.Seq[snapshot.ID] {
	return func(yield func(snapshot.ID) bool) {
		for _, t := range r.Trees {
			if !yield(t.Base) {
				return
			}
		}
		for _, m := range r.Snapshots {
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

// Generations returns the values of Refreshed for the bases of the sandbox and of its named
// snapshots.
func (r *Record) Generations() []int {
	all := []int{r.Refreshed}
	for _, m := range r.Snapshots {
		if m.Base != nil && !slices.Contains(all, m.Base.Refreshed) {
			all = append(all, m.Base.Refreshed)
		}
	}
	return all
}

// A Policy is what a sandbox's processes may see and do beyond the strict default.
type Policy struct {
	// Network is "none", "host", or "allow:" with rules.
	Network string `json:"network"`
	// Expose lists paths of secrets that are visible nevertheless; Env lists variables that
	// are passed besides the harmless ones, as NAME or NAME=VALUE.
	Expose []string `json:"expose,omitempty"`
	Env    []string `json:"env,omitempty"`
	// Hide lists paths to hide beyond the default.
	Hide []string `json:"hide,omitempty"`
	// Limits bound the resources of its processes.
	Limits Limits `json:"limits,omitzero"`
	// Tools says which programs may be executed; nil means all.
	Tools *Tools `json:"tools,omitempty"`
	// Data says which paths may be written; nil means all.
	Data *Data `json:"data,omitempty"`
	// Result lists the only paths of the workspace that a promotion takes where nobody names
	// paths, and has what the processes look for observed; nil means all, and nothing is observed.
	Result []string `json:"result,omitempty"`
	// Observe has the files that the processes look up and the programs that they execute observed.
	Observe bool `json:"observe,omitempty"`
	// BestEffort lets a sandbox run with less isolation than requested, and report that.
	BestEffort bool `json:"best_effort,omitempty"`
	// Prove makes each start run the isolation self-test, before any command.
	Prove bool `json:"prove,omitempty"`
	// Evidence makes every act on the sandbox leave a signed record.
	Evidence bool `json:"evidence,omitempty"`
	// KeyPoints say when snapfs takes snapshots by itself; nil for never.
	KeyPoints *KeyPoints `json:"key_points,omitempty"`
	// Secrets are put into requests by the proxy; their values are not here, nor inside.
	Secrets []Secret `json:"secrets,omitempty"`
	// Budget bounds what its requests use, or is nil.
	Budget *Budget `json:"budget,omitempty"`
	// Profile is the profile from which part of the policy comes, or nil.
	Profile *ProfileUse `json:"profile,omitempty"`
	// Site is the site's policy if it tightened this one, or nil.
	Site *SiteUse `json:"site,omitempty"`
}

// Data says which paths the processes of a sandbox may write. Every path is absolute.
type Data struct {
	// Writable lists the only files and directories, with everything below them, that may be
	// written, besides /tmp, /dev and /run; nil means all, and an empty list none.
	Writable []string `json:"writable,omitzero"`
	// ReadOnly lists files and directories that may not be written, also if Writable has them.
	ReadOnly []string `json:"read_only,omitempty"`
}

// A SiteUse says what the site's policy tightened of a sandbox's.
type SiteUse struct {
	// Path is the path of the site's policy.
	Path string `json:"path"`
	// Bounded lists what it tightened, such as "memory 1G".
	Bounded []string `json:"bounded"`
}

// A ProfileUse says which parts of a profile a policy uses.
type ProfileUse struct {
	// Path is the path of the profile.
	Path string `json:"path"`
	// Found is set if the user did not name the profile; then it could only tighten the
	// policy.
	Found bool `json:"found,omitempty"`
	// Taken lists the settings that come from the profile, such as "memory 1G". Left lists its
	// other settings: a flag overrides them, or the profile was only found and they would
	// loosen the policy.
	Taken []string `json:"taken,omitempty"`
	Left  []string `json:"left,omitempty"`
}

// Set reports whether the limit has this value because of the profile. u may be nil.
func (u *ProfileUse) Set(limit, value string) bool {
	return u != nil && slices.Contains(u.Taken, limit+" "+value)
}

// A Proof is the result of an isolation self-test.
type Proof struct {
	When time.Time     `json:"when"`
	Took time.Duration `json:"took_ns"`
	// Held names the walls that held; Crossed those that a probe could cross.
	Held    []string `json:"held"`
	Crossed []Wall   `json:"crossed,omitempty"`
}

// A Wall is one boundary that a self-test has tested.
type Wall struct {
	Name     string `json:"name"`
	Tried    string `json:"tried"`
	Happened string `json:"happened"`
}

// Snapshot returns the named snapshot with this name; false if there is none.
func (r *Record) Snapshot(name string) (NamedSnapshot, bool) {
	for _, m := range r.Snapshots {
		if m.Name == name {
			return m, true
		}
	}
	return NamedSnapshot{}, false
}

// NewSnapshot returns an id for another snapshot of this sandbox. Saving the record makes it
// permanent.
func (r *Record) NewSnapshot() snapshot.ID {
	r.Next++
	return snapshot.ID(r.id("s", r.Next))
}

// NewFork returns an id for another fork of this sandbox. Saving the record makes it
// permanent.
func (r *Record) NewFork() snapshot.ForkID {
	r.Next++
	return snapshot.ForkID(r.id("f", r.Next))
}

func (r *Record) id(kind string, n int) string { return r.ID + "-" + kind + strconv.Itoa(n) }

// Numbers yields every snapshot and fork id ever allocated for the sandbox, including unused
// ones.
func (r *Record) Numbers() iter.Seq2[snapshot.ID, snapshot.ForkID] {
	return func(yield func(snapshot.ID, snapshot.ForkID) bool) {
		for n := 1; n <= r.Next; n++ {
			if !yield(snapshot.ID(r.id("s", n)), snapshot.ForkID(r.id("f", n))) {
				return
			}
		}
	}
}

// Owner returns the id of the sandbox that a snapshot or fork id was allocated for.
func Owner(id string) string {
	owner, _, _ := strings.Cut(id, "-")
	return owner
}

// Owns reports whether a snapshot id was allocated for this sandbox.
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
			Hints: []string{"snapfs rm " + errs.Quoted(filepath.Base(filepath.Dir(path))) + "   # with everything in it"},
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
		Err: fmt.Errorf("written by a newer snapfs (format %d, this one supports %d)", format, Format),
	}
}
