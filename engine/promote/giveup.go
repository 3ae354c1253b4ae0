package promote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A GivenUp reports what [GiveUp] left of a killed promotion.
type GivenUp struct {
	// Old lists old versions of files that exist nowhere else: they were moved out of the target, and stay where
	// they are.
	Old []OldVersion
	// Left lists the promotion's private directories that stay, because old versions are in them or because they
	// cannot be removed.
	Left []string
}

// An OldVersion is the old version of a file or directory that a promotion moved out of its target.
type OldVersion struct {
	Path string `json:"path"` // in the target, before the promotion
	In   string `json:"in"`   // where the old version is now
}

// GiveUp removes the journal of the killed promotion id from stateDir, so that nothing completes or reverts the
// promotion any more. The target stays as it is. The promotion's private directories are removed unless old versions of
// files are in them, which exist nowhere else; the journal is then renamed, and says which is which. A GiveUp that is
// killed may be repeated. Errors: ErrNotFound (no such killed promotion), ErrBusy (a promotion is running).
func GiveUp(ctx context.Context, stateDir, id string) (GivenUp, error) {
	none := &errs.Error{Op: "giving up", Subject: pathlist.Printable(id), Kind: errs.ErrNotFound, Err: errors.New("no killed promotion with this ID waits")}
	if !snapshot.ValidID(id) {
		return GivenUp{}, none
	}
	lock, err := journalfile.Lock(stateDir, false)
	if err != nil {
		return GivenUp{}, wrap("giving up", stateDir, err)
	}
	defer vfs.Unlock(lock)
	for _, suffix := range []string{suffixJournal, suffixUndoing, suffixDropping} {
		journal := filepath.Join(stateDir, id+suffix)
		if !exists(journal) {
			continue
		}
		r, err := readJournal(journal)
		if err != nil {
			return GivenUp{}, wrap("giving up", journal, err)
		}
		g, err := r.giveUp(stateDir)
		if err == nil {
			err = endJournal(ctx, journal, len(g.Old) > 0)
		}
		return g, wrap("giving up", journal, err)
	}
	return GivenUp{}, none
}

// giveUp removes the stages of a killed promotion, its private directories, in which there are no old versions of files.
// It lists these versions, and the stages that stay. Whatever cannot be removed stays.
func (r *record) giveUp(stateDir string) (g GivenUp, err error) {
	for i, s := range r.stages {
		path := s.pathIn(r.path)
		err := s.alone(r.path, func(in *nodes.Dirs) error {
			old, err := r.oldIn(i, path)
			g.Old = append(g.Old, old...)
			if err != nil || s.dir == nil {
				return err
			}
			if len(old) > 0 || r.shared(stateDir) || s.remove(in) != nil {
				g.Left = append(g.Left, path)
			}
			return nil
		})
		if err != nil && !nodes.Missing(err) {
			return g, err
		}
	}
	return g, nil
}

// oldIn lists the old versions in the promotion's stage number i, whose directory at path is open.
func (r *record) oldIn(i int, path string) (old []OldVersion, err error) {
	s := r.stages[i]
	for _, o := range r.ops {
		if s.dir == nil || o.verb != swap && o.verb != drop || o.stage != i {
			continue
		}
		st, err := nodes.StatOrNil(s.dir, o.name)
		if err != nil {
			return old, at(o.path, err)
		}
		if st != nil && o.old.SameNode(st) {
			old = append(old, OldVersion{Path: filepath.Join(r.path, o.path), In: filepath.Join(path, o.name)})
		}
	}
	return old, nil
}

// alone opens the stage of a promotion as s.dir, if it exists, even if the target no longer exists, and calls f.
// The argument of f are the directories in which the stage lies.
func (s *stage) alone(target string, f func(in *nodes.Dirs) error) error {
	was := *s
	defer func() { s.close(); *s = was }()
	if s.beside {
		target, s.beside, s.where = filepath.Dir(target), false, "."
	}
	root, err := os.Open(target)
	if err != nil {
		return err
	}
	defer root.Close()
	in := &nodes.Dirs{Root: root}
	defer in.Close()
	if err := s.open(in); err != nil {
		return err
	}
	return f(in)
}

// pathIn returns the path of the stage, a private directory of the promotion to the directory target.
func (s *stage) pathIn(target string) string {
	if s.beside {
		return filepath.Join(filepath.Dir(target), s.name)
	}
	return filepath.Join(target, s.where, s.name)
}

// bornSince reports whether a directory was made after the promotion r began. It has the inode number of the promotion's
// target if the target was deleted and its number given again.
func (r *record) bornSince(st *vfs.Stat) bool {
	return st.BTime != vfs.Timestamp{} && !r.made.IsZero() && st.BTime.Time().After(r.made)
}

// gone reports whether the target of a killed promotion was certainly deleted or moved away: its path leads to no
// directory or to another one, while a stage that the promotion made beside it is there. If the filesystem of the
// target were merely not mounted, that stage would be missing, too.
func (r *record) gone() bool {
	root, err := os.Open(r.path)
	if err == nil {
		st, err := vfs.Lstat(int(root.Fd()), "")
		root.Close()
		if err != nil || st.Ino == r.ino && !r.bornSince(&st) {
			return false
		}
	} else if !nodes.Missing(err) {
		return false
	}
	return slices.ContainsFunc(r.stages, func(s *stage) (there bool) {
		if !s.beside {
			return false
		}
		err := s.alone(r.path, func(*nodes.Dirs) error { there = s.dir != nil; return nil })
		return err == nil && there
	})
}
