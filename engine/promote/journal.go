package promote

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/promote/journalfile"
	"github.com/snapfs/snapfs/engine/promote/nodes"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A record is the content of a promotion's journal, a text file in the state directory. Each
// line starts with its CRC-32C, which reveals a line torn by a power loss. It has three parts,
// and each is on disk before the steps that it describes begin:
//
//	snapfs-promotion 2 ID
//	made TIME CHANGES KEEP "GROUP"       KEEP is no, history or passing
//	undone TIME                          the inverse of an undone promotion; its undo is a redo
//	sandbox "NAME"
//	target "/home/ann/project" INODE
//	stage beside "" ".snapfs-apply-ID"
//	place "src" INODE MODE MTIME         a directory in which names will change
//
//	swap "src/a.go" 0 "1" OLD NEW CTIME  stage, name in it, identities, old change time
//	put "src/new" 0 "2" - NEW 0.0
//	in "b.go" NEW                        a node below the new directory
//	drop "gone" 0 "3" OLD - CTIME
//	alter "src" OLD ASPECTS MODE UID GID MTIME ASPECTS MTIME MODE UID GID CTIME   before, after
//	attr "user.a" "value"                old attributes
//	to "user.a" "value"                  new attributes, which an undo expects
//	ready                                all staged: moves may begin
//
//	commit                               all moved: old versions may be removed
//
//	stamp "src/a.go" INODE CTIME         expected by an undo; the last one counts
//
// The first version had no made, to and stamp lines, and no times and owners at the ends of
// lines: undoing one of those checks less.
//
// An identity is inode/birth/mtime/mode/uid/gid/size, the mode in octal.
type record struct {
	id      string
	version string
	sandbox string
	group   string // the promotion's group, by default its own id
	retain  retention
	made    time.Time
	undone  time.Time // in the inverse of an undone promotion, when that was undone
	count   int       // of changes
	path    string    // of the target
	ino     uint64    // of the target
	stages  []*stage
	dirs    []*nodes.ChangedDir
	ops     []*op
	ready   bool
	commit  bool
	torn    bool             // the end of the file was damaged
	stamps  map[string]Stamp // of results, for undo
}

// retention says how long a promotion's old versions, the replaced and deleted files, stay stored so that it
// can be undone.
type retention string

const (
	retainNone      retention = "no"
	retainHistory   retention = "history" // until ten newer ones exist
	retainTemporary retention = "passing" // until Forget
)

const (
	journalVersion = "2"
	firstVersion   = "1"
	suffixJournal  = ".journal"
	suffixUndo     = ".undo"    // committed; old versions are retained
	suffixUndoing  = ".undoing" // being reverted
	suffixRedo     = ".redo"    // inverse of a reverted one; new versions are retained
	suffixSplit    = ".split"   // part of a committed one, to be reverted
	suffixNew      = ".new"     // incomplete
	suffixDropping = ".drop"    // committed; old versions are being removed
	suffixPartial  = ".left"    // reverted, except for paths that other programs changed
)

// createJournal creates the journal of the promotion r with its header, syncs it and its directory, and
// returns it open for appending.
func createJournal(stateDir string, r *record) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, r.id+suffixJournal), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err = journalfile.Append(f, r.header()); err == nil {
		err = vfs.SyncDir(stateDir)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return f, nil
}

func (r *record) header() journalfile.Lines {
	var l journalfile.Lines
	l.Add("snapfs-promotion %s %s", journalVersion, r.id)
	l.Add("made %s %d %s %q", journalfile.Stamp(journalfile.Timestamp(r.made)), r.count, r.retain, r.group)
	if !r.undone.IsZero() {
		l.Add("undone %s", journalfile.Stamp(journalfile.Timestamp(r.undone)))
	}
	l.Add("sandbox %q", r.sandbox)
	l.Add("target %q %d", r.path, r.ino)
	for _, s := range r.stages {
		how := "in"
		if s.beside {
			how = "beside"
		}
		l.Add("stage %s %q %q", how, s.where, s.name)
	}
	for _, p := range r.dirs {
		l.Add("place %q %d %o %s %t %t", p.Path, p.Ino, p.Mode, journalfile.Stamp(p.MTime), p.Names, p.Widen)
	}
	return l
}

// body returns the second part of a promotion's journal: the lines of its steps, and "ready".
func (r *record) body() journalfile.Lines {
	var l journalfile.Lines
	for _, o := range r.ops {
		if o.verb == alter {
			m, n := o.before, o.after
			l.Add("alter %q %s %d %o %d %d %s %d %s %o %d %d %s", o.path, journalfile.Ident(o.old), uint(m.What), m.Mode, m.UID, m.GID,
				journalfile.Stamp(m.MTime), uint(n.What), journalfile.Stamp(n.MTime), n.Mode, n.UID, n.GID, journalfile.Stamp(o.oldCTime))
			for name, value := range m.Xattrs {
				l.Add("attr %q %q", name, value)
			}
			for name, value := range n.Xattrs {
				l.Add("to %q %q", name, value)
			}
			continue
		}
		l.Add("%s %q %d %q %s %s %s", o.verb, o.path, o.stage, o.name, journalfile.Ident(o.old), journalfile.Ident(o.new), journalfile.Stamp(o.oldCTime))
		for rel, i := range o.newTree {
			l.Add("in %q %s", rel, journalfile.Ident(i))
		}
	}
	l.Add("ready")
	return l
}

func commitLine() journalfile.Lines {
	var l journalfile.Lines
	l.Add("commit")
	return l
}

// stampLines returns the journal lines with all, the stamps (inode and change time) by path, by which an undo
// recognises that files are unchanged.
func stampLines(all map[string]Stamp) journalfile.Lines {
	var l journalfile.Lines
	for path, s := range all {
		if s == (Stamp{}) {
			continue
		}
		l.Add("stamp %q %d %s", path, s.Ino, journalfile.Stamp(journalfile.Timestamp(s.CTime)))
	}
	return l
}
