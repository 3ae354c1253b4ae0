package baseline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Reading lists the files of a sandbox's workspace in a manifest, in the background, while the sandbox's
// container starts. From the manifest snapfs later knows the original of a file that the user changes while
// the command runs. The start waits for the Reading only at its end, and only in a workspace of at most
// quickNames files, see [Recorder.OpenWindow].
//
// The methods of a nil Reading do nothing.
type Reading struct {
	cancel context.CancelFunc
	// quick is closed when the states of all files and the newest texts are in memory, or the start need not wait.
	quick, done chan struct{}
	enough      func() // closes quick
	// many is closed when more than quickLook files have been found.
	many chan struct{}
	// files is how many files have been found.
	files atomic.Int64
	// open is closed when the sandbox's window has begun, and stopped when the reading is no longer needed.
	open, stopped chan struct{}
	stop          func() // closes stopped
}

const (
	// quickNames is the number of files up to which the start of a sandbox waits until its workspace is
	// listed. quickTexts is how many small texts, the newest, the start waits for.
	quickNames = 5000
	quickTexts = 500
	// quickLook is the number of files of a workspace up to which the start of a sandbox waits until their list, the
	// manifest, is stored.
	quickLook = 300
	// quickPatience bounds each wait of a sandbox's start for the list of its workspace's files. Then the start
	// continues without. On a quiet machine the list is complete before the container has started.
	quickPatience = 10 * time.Millisecond
	// listedLately is how long ago the workspace may have been listed for another start, so that one reading is enough
	// for the next: few files have changed since.
	listedLately = 10 * time.Second
	// readingPatience is how long the listing of a workspace's files, in the background, waits for another
	// sandbox's process that lists the same workspace.
	readingPatience = 30 * time.Second
)

// StartReading starts to list the files of a sandbox's workspace in a manifest, while nothing runs in the
// sandbox. It returns nil for a frozen base, which needs no manifest. The caller calls Stop. Cost: that of
// UpdateManifest, in a goroutine.
func (bl *Recorder) StartReading(ctx context.Context, rec *catalog.Record) *Reading {
	if t := workspaceTree(rec); rec.Ephemeral || t == nil || t.Frozen {
		return nil
	}
	own := *rec
	r := &Reading{quick: make(chan struct{}), many: make(chan struct{}), done: make(chan struct{}), open: make(chan struct{}), stopped: make(chan struct{})}
	r.enough = sync.OnceFunc(func() { close(r.quick) })
	r.stop = sync.OnceFunc(func() { close(r.stopped) })
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.done)
		defer r.enough()
		bl.readStart(ctx, &own, r)
	}()
	return r
}

// opened notes that the sandbox's container is mounted, so that from now on the real tree has the originals (its
// window has begun). In a small workspace it waits until the manifest is stored, for quickPatience at most, so that
// commands begin after that.
func (r *Reading) opened(ctx context.Context) {
	if r == nil {
		return
	}
	close(r.open)
	r.wait(ctx, r.many)
}

// awaitOpened waits until opened is called, when the sandbox's container is mounted; it returns false if that will
// not happen.
func (r *Reading) awaitOpened(ctx context.Context) bool {
	select {
	case <-r.open:
		return true
	case <-r.stopped:
	case <-ctx.Done():
	}
	select {
	case <-r.open:
		return true
	default:
		return false
	}
}

// await waits until the reading has the states of all files of the workspace in memory, for quickPatience at most.
func (r *Reading) await(ctx context.Context) {
	if r != nil {
		r.wait(ctx, r.quick)
	}
}

// wait waits until a channel is closed or the reading of the workspace has ended, for quickPatience at most.
func (r *Reading) wait(ctx context.Context, until chan struct{}) {
	late := time.NewTimer(quickPatience)
	defer late.Stop()
	select {
	case <-until:
	case <-r.done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// Cancel cancels the reading without waiting for its end, for a sandbox whose changes nobody will compare. The caller
// then calls Stop.
func (r *Reading) Cancel() {
	if r != nil {
		r.cancel()
	}
}

// Stop cancels the reading of a large workspace, and waits until the reading has ended.
func (r *Reading) Stop() {
	if r == nil {
		return
	}
	r.stop()
	if r.files.Load() > quickNames {
		r.cancel()
	}
	<-r.done
	r.cancel()
}

// UpdateManifest lists the files of a sandbox's workspace in a manifest, from which snapfs later knows their
// originals. If the newest manifest is recent enough for the sandbox, it only adds missing texts. A
// supervisor calls it in the background of a running command. It reports no error: without a manifest, some
// originals are not known. Cost: a statx of each file, and reading each changed small text.
func (bl *Recorder) UpdateManifest(ctx context.Context, rec *catalog.Record) {
	bl.updateManifest(ctx, rec, nil)
}

// StartManifest begins an UpdateManifest in the background, for sandboxes that have just been made and whose
// results are compared with the real tree later. stop waits for its end. It cancels the update first if the
// workspace has more than quickNames files, or if another process still reads the workspace.
func (bl *Recorder) StartManifest(ctx context.Context, rec *catalog.Record) (stop func()) {
	own, files, done := *rec, new(atomic.Int64), make(chan struct{})
	files.Store(waitsForLock)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(done)
		bl.updateManifest(ctx, &own, files)
	}()
	return func() {
		defer cancel()
		for {
			if n := files.Load(); n == waitsForLock || n > quickNames {
				cancel()
			}
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// waitsForLock in place of the number of files that a reading has found means that it has not begun, since
// another process has the lock of the manifest.
const waitsForLock = -1

// updateManifest is UpdateManifest. It stores in files, unless that is nil, how many files it has found so far,
// from waitsForLock on.
func (bl *Recorder) updateManifest(ctx context.Context, rec *catalog.Record, files *atomic.Int64) {
	t := workspaceTree(rec)
	if t == nil || t.Frozen {
		return
	}
	dir := bl.manifestDir(rec.Workspace)
	lock := lockManifest(ctx, dir, syscall.LOCK_EX, readingPatience)
	if lock == nil {
		return
	}
	defer vfs.Unlock(lock)
	if files != nil {
		files.Store(0)
	}
	seen, large := manifestSeen(dir)
	if large && time.Since(seen) < manifestRetry {
		return
	}
	partial := isPartial(dir)
	if !seen.Before(bl.Since(rec, t)) {
		if partial {
			bl.fillManifest(ctx, rec.Workspace)
		}
		return
	}
	m := bl.newManifestReader(ctx, rec, t)
	if m == nil {
		return
	}
	defer m.close()
	m.partial, m.count = partial, files
	if m.read() && m.now.save(bl.keepEarlier(rec.Workspace, m.old), m.partial) {
		writeConfirmed(dir, m.sum(), m.now.seen)
	}
}

// readStart reads the workspace of a sandbox that starts. A file may change between its reading and the mounting of
// the sandbox's container, with which its window begins: the state at that instant is the original. So readStart
// looks at all files once more after it, and leaves out those that have changed: their originals are not known.
//
// If the workspace was listed lately, that list has the states before the window of all files but a few, and the
// reading after its beginning finds those few by their change times: see readOpened.
func (bl *Recorder) readStart(ctx context.Context, rec *catalog.Record, r *Reading) {
	t, dir := workspaceTree(rec), bl.manifestDir(rec.Workspace)
	if seen, large := manifestSeen(dir); large && time.Since(seen) < manifestRetry {
		return
	}
	sum, seen := readConfirmed(dir)
	if age := time.Since(seen); sum != "" && age >= 0 && age < listedLately { // the clock may have been set back
		r.enough()
		if r.awaitOpened(ctx) {
			bl.readOpened(ctx, rec, t, r, seen)
		}
		return
	}
	m := bl.newManifestReader(ctx, rec, t)
	if m == nil {
		return
	}
	defer m.close()
	m.partial, m.reading, m.count, m.texts = isPartial(dir), r, &r.files, quickTexts
	texts, err := m.readStates()
	r.enough()
	if err != nil && !errors.Is(err, errTooLarge) || !r.awaitOpened(ctx) {
		return
	}
	lock := lockManifest(ctx, dir, syscall.LOCK_EX, readingPatience)
	if lock == nil {
		return
	}
	defer vfs.Unlock(lock)
	if err != nil { // too large
		bl.storeEmpty(rec.Workspace, m)
		return
	}
	again := bl.newManifestReader(ctx, rec, t)
	if again == nil {
		return
	}
	defer again.close()
	again.files = make([]foundFile, 0, len(m.files)+1)
	if again.readDir(".") != nil {
		return
	}
	bl.storeStart(rec.Workspace, m, again, texts)
}

// readOpened reads the workspace once, after the window of a sandbox that starts has begun. A file that nobody has
// changed since has its original there. The stored manifest, which a reading from the time listed on has confirmed, has
// the texts of all files but those changed since then, and readOpened reads these as soon as it finds them. It does
// nothing if another start has listed the workspace since the window began.
func (bl *Recorder) readOpened(ctx context.Context, rec *catalog.Record, t *catalog.Tree, r *Reading, listed time.Time) {
	dir := bl.manifestDir(rec.Workspace)
	lock := lockManifest(ctx, dir, syscall.LOCK_EX, readingPatience)
	if lock == nil {
		return
	}
	defer vfs.Unlock(lock)
	if seen, _ := manifestSeen(dir); !seen.Before(bl.Since(rec, t)) {
		return
	}
	m := bl.newManifestReader(ctx, rec, t)
	if m == nil {
		return
	}
	defer m.close()
	m.partial, m.reading, m.count, m.texts, m.listed = isPartial(dir), r, &r.files, quickTexts, listed
	switch texts, err := m.readStates(); {
	case errors.Is(err, errTooLarge):
		bl.storeEmpty(rec.Workspace, m)
	case err == nil:
		bl.storeStart(rec.Workspace, m, m, texts)
	}
}

// storeEmpty stores that the workspace that m has read has too many files for a manifest. The caller holds the lock of
// the manifest's directory.
func (bl *Recorder) storeEmpty(workspace string, m *manifestReader) {
	m.empty()
	m.now.seen = vfs.Now()
	m.now.save(bl.keepEarlier(workspace, m.old), m.partial)
}

// storeStart stores the manifest that m has read when a sandbox started, with the bytes texts. again is a later
// reading of the same files, without texts, or m: the stored manifest has its time, and lacks the files that differ in it.
// The caller holds the lock of the manifest's directory.
func (bl *Recorder) storeStart(workspace string, m, again *manifestReader, texts map[string][]byte) {
	dir, sum := m.now.dir, m.sum()
	m.now.seen = again.now.seen
	if confirmed, _ := readConfirmed(dir); m.old == nil && confirmed == sum && again.sum() == sum {
		writeConfirmed(dir, sum, m.now.seen)
		return
	}
	if m.old == nil {
		m.old = readManifest(dir, manifestFile)
		m.reuseAll() // of the others, the states at the beginning are not known
	}
	if again.sum() != sum {
		m.leaveOut(again)
		sum = "" // no later reading finds just these entries
	}
	if seen, _ := manifestSeen(dir); !seen.Equal(m.old.seen) { // another sandbox has stored one meanwhile
		m.old = readManifest(dir, manifestFile)
	}
	for abs, data := range texts {
		if _, ok := m.now.list.Nodes[abs]; ok {
			m.now.storeText(abs, data)
		}
	}
	if m.now.save(bl.keepEarlier(workspace, m.old), m.partial) {
		writeConfirmed(dir, sum, m.now.seen)
	}
}

// isPartial reports whether the newest manifest in a directory lacks the bytes of small texts, which fillManifest
// adds.
func isPartial(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, partialFile))
	return err == nil
}

// lockManifest locks the directory with the manifests (lists of files) of a workspace; closing the file
// releases the lock. how is the kind of lock of flock(2). It returns nil if another process still has the
// lock after patience.
func lockManifest(ctx context.Context, dir string, how int, patience time.Duration) *os.File {
	if os.MkdirAll(dir, 0o700) != nil {
		return nil
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = poll.Until(soon, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		return vfs.Flock(lock, how|syscall.LOCK_NB) == nil, nil
	})
	if err != nil {
		lock.Close()
		return nil
	}
	return lock
}
