package baseline

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Displaced stores the files that one promotion or undo replaces or removes in the real tree, for older
// sandboxes on a live base, whose originals these files are. On disk it is a directory in displacedDir of the
// state directory, named by the time at which the promotion began. It contains the files of a baseline and
// dirsFile, which has a line for each directory in which names change:
//
//	PATH INODE MTIME INODE MTIME       before and after
//
// The directory is locked by flock(2) until the promotion has ended. If it is not locked and the states after
// the promotion are missing, the process was killed, see [Recorder.EndDisplaced].
//
// Readers ignore directories and lines that they cannot read: the cost of a missing original is a conflict.
type Displaced struct {
	root     string
	lock     *os.File
	began    time.Time
	dirs     map[string]dirChange
	baseline Baseline
}

// dirChange is the state of a real directory before and after a promotion: its inode and modification time,
// by which a later command recognises that the names in it are the same.
type dirChange struct{ before, after dirState }

type dirState struct {
	ino   uint64
	mtime time.Time
}

const (
	displacedDir = "displaced"
	dirsFile     = "dirs"
	// maxDisplaced is for how many promotions, the newest ones, the state directory stores the files that they
	// replaced in the real tree. Those of older promotions are removed, which costs an older sandbox conflicts.
	maxDisplaced = 256
)

// onlyName is the reason stored with a replaced file of which a promotion recorded only the name and not the
// content, because no other sandbox could need its original. The former state of that path, and of everything
// in it, is not known.
const onlyName = "there was no other sandbox"

// Displace stores the present state of real paths, relative to root, that a promotion of the sandbox name is about to
// change, for older sandboxes, whose originals these are. The caller calls End after the promotion. Cost: a statx and
// the xattrs of each path, and a copy of a small text. If there is no other sandbox, it stores only the names, for a
// sandbox that is made before the promotion ends.
func (bl *Recorder) Displace(name, root string, paths []string) (*Displaced, error) {
	bl.PruneDisplaced(maxDisplaced / 4)
	d := &Displaced{root: root, began: vfs.Now(), dirs: map[string]dirChange{}}
	d.baseline = Baseline{Dir: filepath.Join(bl.cat.Dir(), displacedDir, strconv.FormatInt(d.began.UnixNano(), 10)), Nodes: map[string]Entry{}}
	dir, err := OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	err = os.MkdirAll(d.baseline.Dir, 0o700)
	if err == nil {
		d.lock, err = os.Open(d.baseline.Dir)
	}
	if err == nil {
		err = vfs.Flock(d.lock, syscall.LOCK_EX)
	}
	if err == nil {
		err = d.fill(dir, paths, !bl.others(name))
	}
	if err != nil {
		vfs.Unlock(d.lock)
		return nil, errs.With("recording what is displaced", d.baseline.Dir, err)
	}
	return d, nil
}

// fill stores the state that the files at paths, relative to dir, have before a promotion replaces them, and
// saves d. With names set it stores only their names.
func (d *Displaced) fill(dir *os.File, paths []string, names bool) error {
	recorder := pathRecorder{baseline: &d.baseline, base: LiveBase{Real: RootedReader{Root: dir}}}
	defer recorder.base.Real.Close()
	for _, path := range slices.Sorted(slices.Values(paths)) { // sorted, for the cache of the reader
		abs := filepath.Join(d.root, path)
		if d.baseline.full() || d.baseline.Absent(abs) {
			continue
		}
		if names {
			d.baseline.Set(abs, Entry{Unknown: onlyName})
			d.noteDir(&recorder.base.Real, filepath.Dir(path))
			continue
		}
		n, err := recorder.base.Real.Node(path)
		if err != nil {
			return errs.With("", abs, err)
		}
		entry := Entry{Node: n}
		if n != nil && n.Mode.IsRegular() && n.Size <= maxText && d.baseline.bytes+n.Size <= maxBytes {
			if entry.Data, err = recorder.storeText(path, n); err != nil {
				return err
			}
		}
		d.baseline.Set(abs, entry)
		d.noteDir(&recorder.base.Real, filepath.Dir(path))
	}
	return d.save()
}

// noteDir stores the inode and modification time that a real directory has before the promotion in d.dirs,
// unless they are there. By them snapfs recognises later which names in it have changed.
func (d *Displaced) noteDir(real *RootedReader, path string) {
	abs := filepath.Join(d.root, path)
	if _, noted := d.dirs[abs]; noted {
		return
	}
	if st, err := real.stat(path); err == nil {
		d.dirs[abs] = dirChange{before: dirState{st.Ino, st.MTime.Time()}}
	}
}

// turnFile is the name of a file in the directory where promotions store the files that they replace. The
// process whose promotion runs has it locked.
const turnFile = "turn"

// Turn takes the lock by which promotions of one state directory run one after another, and returns the
// function that releases it. It waits at most 10 s, or until ctx ends, and then continues without the lock:
// two promotions at once can cost a conflict.
func (bl *Recorder) Turn(ctx context.Context) (done func()) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir := filepath.Join(bl.cat.Dir(), displacedDir)
	err := os.MkdirAll(dir, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(dir, turnFile), os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err != nil {
		return func() {} // the cost is a conflict, see Displaced
	}
	_ = poll.Until(ctx, time.Millisecond, 20*time.Millisecond, func() (bool, error) { // the promotion itself says that it cannot wait
		return vfs.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
	})
	return func() { vfs.Unlock(f) }
}

// End stores how the changed directories are after the promotion, whether or not that has succeeded, and
// saves d. d may be nil: then Displace has failed, and End does nothing.
func (d *Displaced) End() error {
	if d == nil {
		return nil
	}
	defer vfs.Unlock(d.lock)
	return d.finish()
}

// finish stores the inode and modification time that each changed real directory has after the promotion. It
// does the same as End, but does not release the lock.
func (d *Displaced) finish() error {
	dir, err := OpenRoot(d.root)
	if err != nil {
		return err
	}
	defer dir.Close()
	real := RootedReader{Root: dir}
	defer real.Close()
	for abs, c := range d.dirs {
		rel, err := filepath.Rel(d.root, abs)
		if err != nil {
			continue
		}
		if st, err := real.stat(rel); err == nil {
			c.after = dirState{st.Ino, st.MTime.Time()}
			d.dirs[abs] = c
		}
	}
	return d.save()
}

// save writes the stored states of the files and directories that a promotion replaces to the directory of d.
func (d *Displaced) save() error {
	var dirs []byte
	for abs, c := range d.dirs {
		dirs = fmt.Appendf(strconv.AppendQuote(dirs, abs), " %d %d.%d %d %d.%d\n",
			c.before.ino, c.before.mtime.Unix(), c.before.mtime.Nanosecond(), c.after.ino, c.after.mtime.Unix(), c.after.mtime.Nanosecond())
	}
	for name, data := range map[string][]byte{dirsFile: dirs, baselineFile: d.baseline.encode()} {
		path := filepath.Join(d.baseline.Dir, name)
		if err := catalog.ReplaceFile(path, data, false); err != nil {
			return errs.With("recording what is displaced", path, err)
		}
	}
	return nil
}

// others reports whether there is a sandbox other than the named one, which may need the files that its
// promotion replaces. It returns true if that is not known.
func (bl *Recorder) others(name string) bool {
	dir, err := os.Open(filepath.Dir(bl.cat.Path("x")))
	if err != nil {
		return true
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(2) // an error means that there are none
	return slices.ContainsFunc(names, func(n string) bool { return n != name })
}

// PruneDisplaced removes files that promotions replaced and that no sandbox needs, because each sandbox on a
// live base is younger. It does so only if those of more than most promotions are stored. It also removes all
// but the newest maxDisplaced. Cost: reading the catalogue entries of all sandboxes.
func (bl *Recorder) PruneDisplaced(most int) {
	top := filepath.Join(bl.cat.Dir(), displacedDir)
	list, err := os.ReadDir(top) // sorted by name, which is by time until the year 2286
	if err != nil || len(list) <= most {
		return
	}
	oldest := int64(math.MaxInt64)
	all, failures := bl.cat.List()
	for _, rec := range all {
		for i := range rec.Trees {
			if t := &rec.Trees[i]; !t.Frozen && rec.State == catalog.Ready {
				oldest = min(oldest, bl.Since(rec, t).UnixNano())
			}
		}
	}
	for i, entry := range list {
		began, err := strconv.ParseInt(entry.Name(), 10, 64)
		if err != nil {
			continue
		}
		d := &Displaced{began: time.Unix(0, began), baseline: Baseline{Dir: filepath.Join(top, entry.Name())}}
		needless := len(failures) == 0 && d.endedBefore(time.Unix(0, oldest)) && d.await(time.Now())
		if needless || i < len(list)-maxDisplaced {
			_ = os.RemoveAll(d.baseline.Dir) // the next call retries
		}
	}
}

// history is the files that promotions have replaced in the real tree since an instant, oldest first. With it
// the original of a path at that instant can be found.
type history struct {
	since time.Time
	all   []*Displaced
	// read is the modification time of the directory of records when they were read.
	read time.Time
}

// historySince reads the files that promotions have replaced in the real tree since an instant. It waits for
// promotions that are running.
func (bl *Recorder) historySince(since time.Time) *history {
	h, until := &history{since: since}, time.Now().Add(patience)
	top := filepath.Join(bl.cat.Dir(), displacedDir)
	if info, err := os.Stat(top); err == nil {
		h.read = info.ModTime()
	}
	list, err := os.ReadDir(top)
	if err != nil {
		return h
	}
	for _, entry := range list {
		began, err := strconv.ParseInt(entry.Name(), 10, 64)
		if err != nil {
			continue
		}
		d := &Displaced{began: time.Unix(0, began), baseline: Baseline{Dir: filepath.Join(top, entry.Name())}}
		d.await(until) // one that still runs then is read as it is
		if d.endedBefore(since) {
			continue
		}
		k, err := readDir(d.baseline.Dir)
		if err != nil || len(k.Nodes) == 0 {
			continue
		}
		d.baseline = *k
		d.readDirs()
		h.all = append(h.all, d)
	}
	return h
}

// endedBefore reports whether the promotion that replaced the files in d ended before an instant. d was last
// saved when it ended.
func (d *Displaced) endedBefore(since time.Time) bool {
	info, err := os.Stat(d.baseline.Dir)
	return err != nil || info.ModTime().Before(since) && d.began.Before(since)
}

// latestHistory returns a function that returns the files that promotions have replaced since an instant. It
// reads them anew if promotions have begun since the last call, because they may have made the real tree that
// the caller has just read.
func (bl *Recorder) latestHistory(since time.Time) func() *history {
	var h *history
	return func() *history {
		if h == nil || h.stale(bl) {
			h = bl.historySince(since)
		}
		return h
	}
}

// stale reports whether promotions have begun since this history of replaced files was read, so that it lacks
// theirs.
func (h *history) stale(bl *Recorder) bool {
	info, err := os.Stat(filepath.Join(bl.cat.Dir(), displacedDir))
	return err == nil && !info.ModTime().Equal(h.read)
}

// patience bounds how long a command waits for running promotions to end, before it reads what they have
// stored so far.
const patience = 10 * time.Second

// readDirs reads from the file dirsFile the stored inodes and times of the directories that the promotion
// changed. If the file is missing, none is known.
func (d *Displaced) readDirs() {
	d.dirs = map[string]dirChange{}
	data, _ := os.ReadFile(filepath.Join(d.baseline.Dir, dirsFile)) // see above
	for line := range strings.Lines(string(data)) {
		l := &lineReader{rest: strings.TrimSuffix(line, "\n")}
		abs := l.quoted()
		c := dirChange{dirState{l.number(64), l.time()}, dirState{l.number(64), l.time()}}
		if !l.bad {
			d.dirs[abs] = c
		}
	}
}

// unfinished reports whether the promotion of d has not stored the state of the changed directories after it,
// because it still runs or its process was killed.
func (d *Displaced) unfinished() bool {
	for _, c := range d.dirs {
		if c.after.ino == 0 {
			return true
		}
	}
	return false
}

// await waits until no process works on the promotion that replaces the files in d, or until an instant. It
// returns true if none does.
func (d *Displaced) await(until time.Time) bool {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	lock, err := os.Open(d.baseline.Dir)
	if err != nil {
		return true // it was removed
	}
	defer vfs.Unlock(lock)
	return poll.Until(ctx, time.Millisecond, 50*time.Millisecond, func() (bool, error) {
		return vfs.Flock(lock, syscall.LOCK_SH|syscall.LOCK_NB) == nil, nil
	}) == nil
}

// EndDisplaced completes the stored data of promotions whose processes were killed, as End would have done.
// The caller has completed or reverted those promotions. Data that cannot be completed costs a conflict.
func (bl *Recorder) EndDisplaced() {
	top := filepath.Join(bl.cat.Dir(), displacedDir)
	list, _ := os.ReadDir(top) // an error means that there are none
	for _, entry := range list {
		dir := filepath.Join(top, entry.Name())
		k, err := readDir(dir)
		if err != nil {
			continue
		}
		d := &Displaced{root: "/", baseline: *k}
		if d.readDirs(); !d.unfinished() {
			continue
		}
		lock, err := os.Open(dir)
		if err != nil {
			continue
		}
		if vfs.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = d.finish() // see above
		}
		vfs.Unlock(lock)
	}
}

// dirBefore returns the state (inode and time) that the directory abs had before the first n promotions of
// the history. s is its state after them.
func (h *history) dirBefore(abs string, n int, s dirState) dirState {
	for i := n - 1; i >= 0; i-- {
		c, ok := h.all[i].dirs[abs]
		if ok && c.after.ino == s.ino && c.after.mtime.Equal(s.mtime) {
			s = c.before
		}
	}
	return s
}

// original returns the state that a real path had at the instant of the history, which promotions may have
// replaced since. If one did, it also returns that promotion, else nil. It returns false if the state is not
// known. now is the real node at the path, and real reads the tree with the given root.
func (h *history) original(root, path string, now *diff.Node, real *RootedReader) (Entry, *Displaced, bool) {
	abs := filepath.Join(root, path)
	within := false // a promotion of the path was running at the instant
	for i, d := range h.all {
		e, listed := d.baseline.Nodes[abs]
		switch {
		case d.began.Before(h.since):
			within = within || listed || d.baseline.Absent(abs)
		case listed && e.Unknown != "":
			return e, d, false
		case listed && e.Node != nil:
			return e, d, vfs.ChangedBefore(e.Node.CTime, h.since)
		case within && (listed || d.baseline.Absent(abs)):
			return e, d, false
		case listed:
			dir := filepath.Dir(abs)
			s, noted := d.dirs[dir]
			return e, d, noted && vfs.ChangedBefore(h.dirBefore(dir, i, s.before).mtime, h.since) || d.baseline.Absent(abs)
		case d.baseline.Absent(abs): // it came with its directory
			return Entry{}, d, true
		}
	}
	unchanged := !within && (now == nil || vfs.ChangedBefore(now.CTime, h.since)) && h.sameNames(root, path, now == nil, real)
	return Entry{Node: now}, nil, unchanged
}

// sameNames reports whether the directories above a real path are still the ones that existed at the instant of the
// history. With absent, it also requires that no name in the path's own directory has changed except by promotions.
// path is relative to root, the tree that real reads.
func (h *history) sameNames(root, path string, absent bool, real *RootedReader) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := real.stat(dir)
		if err != nil {
			return false
		}
		s := h.dirBefore(filepath.Join(root, dir), len(h.all), dirState{st.Ino, st.MTime.Time()})
		if absent && !vfs.ChangedBefore(s.mtime, h.since) {
			return false
		}
		if dir == "." {
			return true
		}
		absent = false // for the directories above
		replaced := !st.BTime.Time().Before(h.since) && st.BTime != (vfs.Timestamp{})
		moved := !st.CTime.Time().Before(h.since) && st.MTime.Time().Before(h.since) && s.mtime.Equal(st.MTime.Time())
		if replaced || moved {
			return false
		}
	}
}

// text returns the stored bytes of the file that e describes, which a promotion replaced in the real tree;
// nil if there are none.
func (d *Displaced) text(e *Entry) []byte {
	if d == nil {
		return nil
	}
	return d.baseline.text(e)
}
