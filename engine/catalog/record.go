package catalog

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/proc"
)

// Format is the version of the state directory's file formats that this program reads and writes. It refuses
// a directory of a newer version, and never changes the version of an existing one.
const Format = 1

// A State says whether the making of a sandbox is complete ([Ready]) or still runs or was interrupted
// ([Creating]).
type State string

// The states of a sandbox. A user sees Creating only after a command died while it created the sandbox; the
// next command removes it.
const (
	Creating State = "creating"
	Ready    State = "ready"
)

// A Record is all that the catalogue stores of one sandbox: its identity, trees, policy, limits and named
// snapshots. It is the file record.json of the sandbox's directory.
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
	// Next is the highest number of the sandbox's snapshots and forks, used or reserved.
	Next int `json:"next"`
	// free are the reserved numbers that [Locked.TakeReserved] has taken for new ids.
	free span
}

// A KeptRun says how `snapfs run` left the sandbox of its command when it did not remove it. It is part of
// the sandbox's record, for later commands to report or remove the sandbox.
type KeptRun struct {
	Ended time.Time `json:"ended"`
	// Unclaimed is set if nobody asked to keep the sandbox. RemoveAfter is then the
	// limit remove-after that run set, 0 if the user had set one. Size is the number of bytes
	// that the sandbox stored beyond its base.
	Unclaimed   bool          `json:"unclaimed,omitempty"`
	RemoveAfter time.Duration `json:"remove_after_ns,omitempty"`
	Size        int64         `json:"size,omitempty"`
}

// OwnRemoval reports whether `snapfs run` itself set the present limit remove-after of the sandbox, because
// the user had not asked to keep the sandbox, and no one has changed it since.
func (r *Record) OwnRemoval() bool {
	return r.Run != nil && r.Run.RemoveAfter > 0 && r.Policy.Limits.RemoveAfter == r.Run.RemoveAfter
}

// A LiveRollback in the record of a running sandbox says that a rollback of its files is under way, to the
// named snapshot To or, for "", to the base. Before holds snapshots of the files before the rollback, in the
// order of the trees. Saved is set once all of them exist; only then does the rollback change anything.
type LiveRollback struct {
	To     string        `json:"mark"`
	Before []snapshot.ID `json:"before"`
	Saved  bool          `json:"kept,omitempty"`
}

// A Tree describes one of the directory trees of the host of which a sandbox has a fork: its path, backend,
// base and fork.
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

// A NamedSnapshot is a state of all trees of a sandbox that the user gave a name, to compare with or roll
// back to.
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

// Identity returns an id of the named snapshot that stays the same when the sandbox is sent to another
// machine.
func (m NamedSnapshot) Identity() string {
	if m.Sent != "" || len(m.IDs) == 0 {
		return m.Sent
	}
	return string(m.IDs[0])
}

// A Base is one set of base snapshots, one for each tree of a sandbox: the states that the forks grew from. A
// refresh gives a sandbox a new one.
type Base struct {
	// Refreshed is the record's Refreshed for this base.
	Refreshed int `json:"refreshed"`
	// Trees are in the order of Record.Trees.
	Trees []TreeBase `json:"trees"`
}

// A TreeBase describes the base of one tree: the snapshot, when it was taken, and whether it is frozen, that
// is, separate from the real tree. A refresh replaces these fields of a [Tree].
type TreeBase struct {
	Base   snapshot.ID `json:"base"`
	Taken  time.Time   `json:"taken"`
	Frozen bool        `json:"frozen"`
}

// base returns the present base snapshot of each of the sandbox's trees, as one value to be stored with a
// named snapshot.
func (r *Record) base() *Base {
	b := &Base{Refreshed: r.Refreshed}
	for _, t := range r.Trees {
		b.Trees = append(b.Trees, TreeBase{t.Base, t.Taken, t.Frozen})
	}
	return b
}

// SetBase makes b the base of the sandbox's trees: a new one at a refresh, or an earlier one at a rollback.
// Named snapshots retain the base that they were taken on.
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

// HasBase reports whether the snapshot id is the base of one of the sandbox's trees, or was it before a
// refresh or rollback.
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

// Generations returns the numbers of all bases that the sandbox or one of its named snapshots still uses. The
// caller removes the stored originals of other bases. A base's number is how many refreshes preceded it
// (Record.Refreshed).
func (r *Record) Generations() []int {
	all := []int{r.Refreshed}
	for _, m := range r.Snapshots {
		if m.Base != nil && !slices.Contains(all, m.Base.Refreshed) {
			all = append(all, m.Base.Refreshed)
		}
	}
	return all
}

// A Policy says which access the processes of a sandbox have beyond, or less than, the strict default:
// network, secrets, environment, programs, writable paths.
type Policy struct {
	// Network is "none", "host", or "allow:" with rules.
	Network string `json:"network"`
	// Ask is how long a connection that no rule of Network allows waits for a person; 0 means that it is
	// refused at once.
	Ask time.Duration `json:"ask,omitempty"`
	// Denied are network rules: connections that they allow and Network does not are refused without a question.
	Denied string `json:"denied,omitempty"`
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
	// KeepEvidence says which of these records are removed when they are old; nil for none.
	KeepEvidence *KeepEvidence `json:"keep_evidence,omitempty"`
	// KeyPoints say when snapfs takes snapshots by itself; nil for never.
	KeyPoints *KeyPoints `json:"key_points,omitempty"`
	// Secrets are put into requests by the proxy; their values are not here, nor inside.
	Secrets []Secret `json:"secrets,omitempty"`
	// Budget bounds what its requests use, or is nil.
	Budget *Budget `json:"budget,omitempty"`
	// Direct says which jobs run without a sandbox; nil for none. Only the policy of a job has it, and that of no
	// sandbox.
	Direct *Direct `json:"direct,omitempty"`
	// Profile is the profile from which part of the policy comes, or nil.
	Profile *ProfileUse `json:"profile,omitempty"`
	// Site is the site's policy if it tightened this one, or nil.
	Site *SiteUse `json:"site,omitempty"`
}

// A SiteUse says which settings of a sandbox the administrator's policy (/etc/snapfs/policy.toml) made
// stricter. It is part of the sandbox's policy.
type SiteUse struct {
	// Path is the path of the site's policy.
	Path string `json:"path"`
	// Bounded lists what it tightened, such as "memory 1G".
	Bounded []string `json:"bounded"`
}

// A ProfileUse says which settings of a sandbox came from a profile file. It is part of the sandbox's policy.
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

// Set reports whether the profile gave the limit called limit this value. u may be nil, for a sandbox without
// a profile.
func (u *ProfileUse) Set(limit, value string) bool {
	return u != nil && slices.Contains(u.Taken, limit+" "+value)
}

// A Proof is the result of an isolation self-test, in which a probe inside a sandbox tried to get out. It is
// part of the sandbox's record.
type Proof struct {
	When time.Time     `json:"when"`
	Took time.Duration `json:"took_ns"`
	// Held names the walls that held; Crossed those that a probe could cross.
	Held    []string `json:"held"`
	Crossed []Wall   `json:"crossed,omitempty"`
}

// A Wall is one boundary of a sandbox's isolation, such as its network, that a self-test tried to cross, with
// the attempt and its outcome as text.
type Wall struct {
	Name     string `json:"name"`
	Tried    string `json:"tried"`
	Happened string `json:"happened"`
}

// Snapshot returns the sandbox's named snapshot called name, and false if there is none.
func (r *Record) Snapshot(name string) (NamedSnapshot, bool) {
	for _, m := range r.Snapshots {
		if m.Name == name {
			return m, true
		}
	}
	return NamedSnapshot{}, false
}

// NewSnapshot returns an unused id for a further snapshot of one of the sandbox's trees. It increments a
// counter of r; once the caller has saved the record, the id is never used again.
func (r *Record) NewSnapshot() snapshot.ID { return snapshot.ID(r.id("s", r.number())) }

// NewFork returns an unused id for a further fork of one of the sandbox's trees. It increments a counter of
// r; once the caller has saved the record, the id is never used again.
func (r *Record) NewFork() snapshot.ForkID { return snapshot.ForkID(r.id("f", r.number())) }

// number returns an unused number for a snapshot or fork of the sandbox: a reserved one if there is one.
func (r *Record) number() int {
	if n := r.free.from; n < r.free.to {
		r.free.from++
		return n
	}
	r.Next++
	return r.Next
}

func (r *Record) id(kind string, n int) string { return r.ID + "-" + kind + strconv.Itoa(n) }

// Numbers yields every snapshot id and fork id that [Record.NewSnapshot] and [Record.NewFork] ever returned
// for the sandbox, including those never used. A removal goes through them all.
func (r *Record) Numbers() iter.Seq2[snapshot.ID, snapshot.ForkID] {
	return func(yield func(snapshot.ID, snapshot.ForkID) bool) {
		for n := 1; n <= r.Next; n++ {
			if !yield(snapshot.ID(r.id("s", n)), snapshot.ForkID(r.id("f", n))) {
				return
			}
		}
	}
}

// Owner returns the id of the sandbox for which the snapshot or fork with this id was made. The sandbox's id
// is a part of it.
func Owner(id string) string {
	owner, _, _ := strings.Cut(id, "-")
	return owner
}

// Owns reports whether the snapshot with this id was made for this sandbox. Otherwise it belongs to another
// sandbox, and this one shares it.
func (r *Record) Owns(id snapshot.ID) bool { return Owner(string(id)) == r.ID }

func encode(r *Record) ([]byte, error) {
	r.Format = Format
	few := *r
	few.Snapshots = nil
	data, usual := encodeUsual(&few)
	if !usual {
		var err error
		if data, err = exactjson.EncodeIndent(few, "", "  "); err != nil {
			return nil, err
		}
	}
	data, err := insertSnapshots(data, r.Snapshots)
	if err != nil {
		return nil, err
	}
	return withSum(append(data, '\n')), nil
}

func decode(path string, data []byte) (*Record, error) {
	r, err := decodeText(data)
	if err != nil {
		return nil, damaged(path, err)
	}
	if r.Format > Format {
		return nil, newer(path, r.Format)
	}
	return r, nil
}

// damaged returns the error for the file path with a record that cannot be decoded because of err.
func damaged(path string, err error) error {
	dir := filepath.Dir(path)
	name := errs.Quoted(filepath.Base(dir))
	hints := []string{"snapfs rm " + name + "   # with everything in it"}
	if _, ok := readCopy(dir); ok {
		hints = append([]string{"snapfs doctor " + name + " --repair"}, hints...)
	}
	return &errs.Error{Op: "reading", Path: path, Kind: errs.ErrCorrupt, Err: err, Hints: hints}
}

// decodeText returns the record that encode has encoded as data, which it may change. The error, which names no file,
// says why data is no record, or no record as it was written.
func decodeText(data []byte) (*Record, error) {
	data, err := withoutSum(data)
	if err != nil {
		return nil, err
	}
	if r, usual := decodeUsual(data); usual {
		return r, nil
	}
	r := new(Record)
	rest, list, err := cutSnapshots(string(data))
	if err == nil {
		if usual, ok := decodeUsual(rest); ok {
			r = usual
		} else {
			err = exactjson.Decode(rest, r)
		}
		r.Snapshots = list
	}
	if err != nil { // without snapshots, or not as encode writes it
		r = new(Record)
		err = exactjson.Decode(data, r)
	}
	return r, err
}

func newer(path string, format int) error {
	return &errs.Error{
		Op: "reading", Path: path, Kind: errs.ErrNotSupported,
		Err: fmt.Errorf("written by a newer snapfs (format %d, this one supports %d)", format, Format),
	}
}
