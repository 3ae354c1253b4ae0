package promote

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// History is how many promotions of a state directory can be undone: the newest ones. Those of one group,
// made by one command, count as one. Older ones are forgotten to free the space of the old versions.
const History = 10

// A Promotion describes a promotion that can be undone, or an undone one that can be done again.
type Promotion struct {
	// ID is the argument for [Undo] and [Forget]. Group is the group of [Options], or the ID.
	ID, Group string
	// Sandbox is the sandbox that made the changes, and Path the path of the target.
	Sandbox, Path string
	// When is the time at which the promotion began.
	When time.Time
	// Applied is the number of changes.
	Applied int
	// Undone is the time of the undo, for a promotion of [Undones].
	Undone time.Time
}

// Promotions lists the promotions that can be undone, newest first. Cost: reads the headers of ten journals; takes no
// lock. Errors: ErrCorrupt, ErrNotSupported (written by a newer version), both together with the readable ones.
func Promotions(stateDir string) ([]Promotion, error) {
	return list(stateDir, suffixUndo, func(p Promotion) time.Time { return p.When })
}

// Undones lists the undone promotions that [Redo] can do again, the last undone first. Those of
// one undo have the same group and time. Cost and errors: those of Promotions.
func Undones(stateDir string) ([]Promotion, error) {
	return list(stateDir, suffixRedo, func(p Promotion) time.Time { return p.Undone })
}

// Groups returns the groups of the promotions that can be undone, newest first; none if stateDir cannot be read.
func Groups(stateDir string) (groups []string) {
	all, _ := Promotions(stateDir) // the command that takes the group reports the error
	for _, p := range all {
		if !slices.Contains(groups, p.Group) {
			groups = append(groups, p.Group)
		}
	}
	return groups
}

func list(stateDir, suffix string, when func(Promotion) time.Time) ([]Promotion, error) {
	names, err := journalfile.Names(stateDir, suffix)
	if err != nil {
		return nil, undoing("", err)
	}
	var all []Promotion
	var failures []error
	for _, name := range names {
		r, err := readHeader(filepath.Join(stateDir, name))
		switch {
		case errors.Is(err, os.ErrNotExist): // undone meanwhile
		case err != nil:
			failures = append(failures, err)
		case r.retain != retainTemporary:
			all = append(all, Promotion{r.id, r.group, r.sandbox, r.path, r.made, r.count, r.undone})
		}
	}
	slices.SortStableFunc(all, func(a, b Promotion) int {
		if c := when(b).Compare(when(a)); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, errors.Join(failures...)
}

// Paths lists the paths that the promotion id changed, relative to its target. alone are those of them that can be
// undone alone: a new directory comes with everything in it. stateDir holds the journals. Errors: those of reading
// the promotion's journal.
func Paths(stateDir, id string) (all, alone []string, err error) {
	r, err := readJournal(filepath.Join(stateDir, id+retainedAs(stateDir, id)))
	if err != nil {
		return nil, nil, undoing(id, err)
	}
	all = slices.Collect(maps.Keys(r.leftStamps()))
	for _, o := range r.ops {
		alone = append(alone, o.path)
	}
	all = append(all, alone...)
	slices.Sort(all)
	return slices.Compact(all), alone, nil
}

// readHeader reads only the header of the journal at path: the lines before the first step, which describe
// the promotion.
func readHeader(path string) (*record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, at(path, err)
	}
	defer f.Close()
	r := &record{}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, corrupt(path, errTorn)
		}
		text, ok := journalfile.Text(line[:max(len(line)-1, 0)])
		word, _, _ := strings.Cut(text, " ")
		if !ok || !slices.Contains([]string{"snapfs-promotion", "made", "undone", "sandbox", "target", "stage"}, word) {
			break
		}
		if err := r.parse(text); err != nil {
			return nil, corrupt(path, err)
		}
	}
	if r.path == "" {
		return nil, corrupt(path, errTorn)
	}
	if st, err := f.Stat(); err == nil && r.version == firstVersion {
		r.made = st.ModTime()
	}
	return r, nil
}

func corrupt(path string, err error) error {
	kind := errs.ErrCorrupt
	if errors.Is(err, errNewer) {
		kind = errs.ErrNotSupported
	}
	return &errs.Error{Op: "reading the journal", Path: path, Kind: kind, Err: err}
}

// trim forgets promotions and undos older than the newest ten (History). Those that it cannot forget now, as while a
// disk is not mounted, are left for the next promotion. The caller holds the lock of the state directory.
func trim(ctx context.Context, stateDir string) {
	for suffix, of := range map[string]func(string) ([]Promotion, error){suffixUndo: Promotions, suffixRedo: Undones} {
		all, _ := of(stateDir) // damaged journals stay for inspection
		var groups []string
		for _, p := range all {
			if group := p.Group + p.Undone.String(); !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
			if len(groups) > History {
				_ = withRetainedLocked(stateDir, p.ID, suffix, forget(ctx))
			}
		}
	}
}

// ignoreStages creates the file [nodes.IgnoreName] in the directories of old versions that lack it, because
// an earlier snapfs made them. names are their journals. Those that cannot be opened now are left for the next
// promotion. The caller holds the lock of the state directory.
func ignoreStages(stateDir string, names []string) {
	for _, name := range names {
		r, err := readHeader(filepath.Join(stateDir, name))
		if err != nil {
			continue // its own undo reports the cause
		}
		real, err := r.openTarget()
		if err != nil {
			continue
		}
		for _, s := range r.stages {
			if s.dir != nil {
				_ = nodes.Ignore(s.dir, s.name) // only a listing of git depends on it
			}
		}
		r.closeStages()
		real.Close()
		real.Root.Close()
	}
}

// makeUndoable renames the journal of a completed promotion, so that the promotion can be undone.
func (r *record) makeUndoable(journal string) error {
	return os.Rename(journal, strings.TrimSuffix(journal, suffixJournal)+suffixUndo)
}

// updateStamps writes new stamps into the journals of other promotions after a revert moved their results back, because
// these moves gave the files new change times. Without it, an undo would take the files for changed.
func (r *record) updateStamps(real *nodes.Dirs, stateDir string) error {
	type moved struct {
		was vfs.Timestamp
		now Stamp
	}
	back, altered := map[uint64]moved{}, r.altered()
	for _, o := range r.ops {
		if st, err := real.Stat(o.path); err == nil && o.verb != put && !st.IsDir() && altered.isReverted(o.old, &st) {
			back[st.Ino] = moved{o.oldCTime, stampOf(&st)}
		}
	}
	for _, pl := range r.dirs { // also of other parts of r
		if s, noted := r.stamps[pl.Path]; noted {
			if st, err := real.Stat(pl.Path); err == nil {
				back[s.Ino] = moved{journalfile.Timestamp(s.CTime), stampOf(&st)}
			}
		}
	}
	if len(back) == 0 {
		return nil
	}
	names, err := journalfile.Names(stateDir, suffixUndo, suffixRedo)
	failures := []error{err}
	for _, name := range names {
		path := filepath.Join(stateDir, name)
		other, err := readJournal(path)
		if err != nil || other.path != r.path || other.ino != r.ino || other.torn {
			continue // its own undo reports the cause
		}
		again := map[string]Stamp{}
		for p, s := range other.stamps {
			if m, ok := back[s.Ino]; ok && s.CTime.Equal(m.was.Time()) {
				again[p] = m.now
			}
		}
		if len(again) > 0 {
			failures = append(failures, appendTo(path, stampLines(again)))
		}
	}
	return errors.Join(failures...)
}

func appendTo(path string, l journalfile.Lines) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return journalfile.Append(f, l)
}
