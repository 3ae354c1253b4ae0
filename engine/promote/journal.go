package promote

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
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
	dirs    []*changedDir
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

// lockState locks a state directory, so that one promotion runs at a time; with create it makes the directory
// if it is missing. Closing the file releases the lock. ErrBusy: another promotion holds the lock.
func lockState(dir string, create bool) (*os.File, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = vfs.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &errs.Error{Op: doing, Path: dir, Kind: errs.ErrBusy, Err: errors.New("another promotion is running")}
		}
		return nil, err
	}
	return f, nil
}

// createJournal creates the journal of the promotion r with its header, syncs it and its directory, and
// returns it open for appending.
func createJournal(stateDir string, r *record) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, r.id+suffixJournal), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err = appendJournal(f, r.header()); err == nil {
		err = vfs.SyncDir(stateDir)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return f, nil
}

// appendJournal appends lines to the journal of a promotion and syncs it, so that they survive a power loss.
func appendJournal(f *os.File, l lines) error {
	if _, err := f.Write(l); err != nil {
		return err
	}
	return f.Sync()
}

// lines is a buffer of lines of a promotion's journal, each with its checksum.
type lines []byte

// line appends a line of a promotion's journal: its checksum and its text, which is formatted as by fmt.Sprintf.
func (l *lines) line(format string, args ...any) {
	start := len(*l)
	text := fmt.Appendf(append(*l, "xxxxxxxx "...), format, args...)
	copy(text[start:], fmt.Sprintf("%08x", checksum(text[start+9:])))
	*l = append(text, '\n')
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func (r *record) header() lines {
	var l lines
	l.line("snapfs-promotion %s %s", journalVersion, r.id)
	l.line("made %s %d %s %q", stamp(timestamp(r.made)), r.count, r.retain, r.group)
	if !r.undone.IsZero() {
		l.line("undone %s", stamp(timestamp(r.undone)))
	}
	l.line("sandbox %q", r.sandbox)
	l.line("target %q %d", r.path, r.ino)
	for _, s := range r.stages {
		how := "in"
		if s.beside {
			how = "beside"
		}
		l.line("stage %s %q %q", how, s.where, s.name)
	}
	for _, p := range r.dirs {
		l.line("place %q %d %o %s %t %t", p.path, p.ino, p.mode, stamp(p.mtime), p.names, p.widen)
	}
	return l
}

// body returns the second part of a promotion's journal: the lines of its steps, and "ready".
func (r *record) body() lines {
	var l lines
	for _, o := range r.ops {
		if o.verb == alter {
			m, n := o.before, o.after
			l.line("alter %q %s %d %o %d %d %s %d %s %o %d %d %s", o.path, identText(o.old), uint(m.What), m.Mode, m.UID, m.GID,
				stamp(m.MTime), uint(n.What), stamp(n.MTime), n.Mode, n.UID, n.GID, stamp(o.oldCTime))
			for name, value := range m.Xattrs {
				l.line("attr %q %q", name, value)
			}
			for name, value := range n.Xattrs {
				l.line("to %q %q", name, value)
			}
			continue
		}
		l.line("%s %q %d %q %s %s %s", o.verb, o.path, o.stage, o.name, identText(o.old), identText(o.new), stamp(o.oldCTime))
		for rel, i := range o.newTree {
			l.line("in %q %s", rel, identText(i))
		}
	}
	l.line("ready")
	return l
}

func commitLine() lines {
	var l lines
	l.line("commit")
	return l
}

// stampLines returns the journal lines with all, the stamps (inode and change time) by path, by which an undo
// recognises that files are unchanged.
func stampLines(all map[string]Stamp) lines {
	var l lines
	for path, s := range all {
		if s == (Stamp{}) {
			continue
		}
		l.line("stamp %q %d %s", path, s.Ino, stamp(timestamp(s.CTime)))
	}
	return l
}

func timestamp(t time.Time) vfs.Timestamp {
	return vfs.Timestamp{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

func stamp(t vfs.Timestamp) string {
	return strconv.FormatInt(t.Sec, 10) + "." + strconv.FormatUint(uint64(t.Nsec), 10)
}

func identText(i nodes.Ident) string {
	if i == (nodes.Ident{}) {
		return "-"
	}
	return fmt.Sprintf("%d/%s/%s/%o/%d/%d/%d", i.Ino, stamp(i.BTime), stamp(i.MTime), i.Mode, i.UID, i.GID, i.Size)
}

// journals lists the names of the files in a state directory that are journals of promotions and end in one
// of the suffixes. Cost: one readdir.
func journals(dir string, suffixes ...string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(suffixes, filepath.Ext(n)) })
	slices.Sort(names)
	return names, err
}
