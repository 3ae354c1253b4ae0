package keypoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// Settle takes the snapshot of a locked sandbox that [Taker.Postpone] has postponed, if there is one. A
// failure is a notice.
func (k *Taker) Settle(ctx context.Context, h *catalog.Locked, seal Seal) {
	if h.Policy.KeyPoints == nil || h.Ephemeral {
		return
	}
	data, err := os.ReadFile(k.postponed(h.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var why catalog.Why
	if err == nil && exactjson.Decode(data, &why) != nil {
		why = catalog.Why{Point: catalog.AtExec, When: After} // a crash cut it short
	}
	if err == nil {
		err = k.take(ctx, h, seal, why)
	}
	if err == nil || errors.Is(err, errOldStay) {
		// Another command may have replaced the note meanwhile. That note stays, because the files that the command
		// wrote may be newer than the snapshot.
		err = errors.Join(err, catalog.RemoveFileIf(k.postponed(h.Name), data))
	}
	if err = Failed(h.Name, why, err); err != nil {
		k.Notice(err.Error())
	}
}

// HasPostponed reports whether the sandbox called name has an automatic snapshot due that [Taker.Postpone] has put off
// until its lock is free. If it has none, a record that is read afterwards lists the snapshot.
func (k *Taker) HasPostponed(name string) bool {
	_, err := os.Lstat(k.postponed(name))
	return err == nil
}

// Postpone stores that an automatic snapshot of the present state of the sandbox called name is due, for a
// caller that does not have the sandbox's lock. The next process that takes the lock takes the snapshot
// before the state changes, by [Taker.Settle] or [Taker.Take]. The note survives the death of this process.
func (k *Taker) Postpone(name string, why catalog.Why) error {
	data, err := noteOf(why)
	if err == nil {
		err = catalog.ReplaceFile(k.postponed(name), data, false)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the sandbox has been removed
	}
	return errs.With("postponing a snapshot of", name, err)
}

// noteOf returns the content of the note that an automatic snapshot is due at the key point why.
func noteOf(why catalog.Why) ([]byte, error) {
	data, err := exactjson.Encode(why)
	return append(data, '\n'), err
}

func (k *Taker) postponed(name string) string { return filepath.Join(k.Catalog.Path(name), "keypoint") }

// TakeFrozen takes the automatic snapshot at the key point why, which the caller has postponed ([Taker.Postpone]), of a
// locked sandbox whose processes are frozen; seal lets them continue. After a failure nobody takes this snapshot later,
// since the files change again: the next command in the sandbox reports the failure.
func (k *Taker) TakeFrozen(ctx context.Context, h *catalog.Locked, seal Seal, why catalog.Why) {
	note, err := noteOf(why)
	if err == nil {
		err = k.take(ctx, h, seal, why)
	}
	if err = Failed(h.Name, why, err); err != nil {
		k.NoteFailure(h.Name, err)
	}
	if err := catalog.RemoveFileIf(k.postponed(h.Name), note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.Notice(err.Error())
	}
}

// Promise stores that the snapshot mark of the sandbox called name is due, for [Taker.TakePromised]. The caller has the
// sandbox's lock and has frozen its processes.
func (k *Taker) Promise(name, mark string) error {
	return catalog.ReplaceFile(k.promised(name), []byte(mark), false)
}

// Promised returns the name of the snapshot of a locked sandbox that a killed process has promised, if there is one.
func (k *Taker) Promised(name string) (mark string, due bool) {
	data, err := os.ReadFile(k.promised(name))
	return string(data), err == nil
}

// TakePromised takes the snapshot mark of a locked sandbox that [Taker.Promise] has promised, unless it exists. It does
// not wait for a commit of the file system. Nobody takes it later; the next command in the sandbox reports a failure.
func (k *Taker) TakePromised(ctx context.Context, h *catalog.Locked, seal Seal, mark string) {
	err := catalog.CheckName(mark)
	if _, taken := h.Snapshot(mark); err == nil && !taken {
		_, err = k.TakeNamed(ctx, h, seal, mark, (*catalog.Locked).SaveReservingOrdered)
	}
	if err != nil {
		k.NoteFailure(h.Name, fmt.Errorf("no snapshot %s of %s: %w", errs.Quoted(mark), h.Name, err))
	}
	if err := os.Remove(k.promised(h.Name)); err != nil {
		k.Notice(err.Error())
	}
}

// IsPromised reports whether a snapshot of the sandbox called name in a state directory is promised and not taken yet.
// The process that takes it has the sandbox's lock until then. IsPromised needs no catalogue.
func IsPromised(state, name string) bool {
	_, err := os.Lstat(filepath.Join(catalog.SandboxDir(state, name), promised))
	return err == nil
}

// promised is the name of the file, in the directory of a sandbox, that [Taker.Promise] writes.
const promised = "checkpoint"

func (k *Taker) promised(name string) string {
	return filepath.Join(k.Catalog.Path(name), promised)
}

// NoteFailure stores that a snapshot of the sandbox called name was not taken because of err, so that the next command
// in the sandbox reports it ([Taker.ReportFailures]). On a full disk the reason may be missing in that report.
func (k *Taker) NoteFailure(name string, err error) {
	k.Notice(err.Error())
	f, oerr := os.OpenFile(k.failures(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if oerr != nil { // renaming needs no space; it fails where no snapshot was postponed
		_ = os.Rename(k.postponed(name), k.failures(name))
		return
	}
	defer f.Close()
	_, _ = f.WriteString(strings.ReplaceAll(err.Error(), "\n", "; ") + "\n") // an empty file is a failure, too
}

// ReportFailures reports the failures that [Taker.NoteFailure] has stored for a locked sandbox, as notices, once. Cost:
// one system call if there are none.
func (k *Taker) ReportFailures(name string) {
	text, err := os.ReadFile(k.failures(name))
	if err != nil {
		return // usually there are none
	}
	if len(text) == 0 || text[0] == '{' { // the disk was full
		text = []byte("a snapshot of " + name + " was not taken, and the reason could not be stored")
	}
	for line := range strings.Lines(string(text)) {
		k.Notice(strings.TrimSuffix(line, "\n"))
	}
	if err := os.Remove(k.failures(name)); err != nil {
		k.Notice(err.Error())
	}
}

func (k *Taker) failures(name string) string {
	return filepath.Join(k.Catalog.Path(name), "keypoint-failures")
}
