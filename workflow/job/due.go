package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

const (
	// quiet is how long the files that a trigger watches must be unchanged before it submits a job, so that
	// the job does not find half-written files.
	quiet = 2 * time.Second
	// restFactor is how many times the duration of a search for changed files a worker waits before the next
	// search. It bounds the load of a large workspace.
	restFactor = 20
	// mostSearched is how many files and directories a search for changed files looks at. Beyond it, the search fails.
	mostSearched = 1_000_000
)

// errNotDue means that a trigger, which submits jobs on a schedule or on changed files, has nothing to submit
// any more, because another process has submitted its job meanwhile.
var errNotDue = errors.New("the condition is not met any more")

// submitDue submits a job for each trigger whose condition is met: its time has come, or its files have
// changed. rested says, by trigger, from when on its files may be searched again. An error of one trigger
// does not stop the others.
func (s *Store) submitDue(ctx context.Context, rested map[int]time.Time) error {
	numbers, err := s.triggerNumbers()
	failures := []error{err}
	for _, n := range numbers {
		if ctx.Err() != nil {
			break
		}
		t, err := s.readTrigger(n)
		if err == nil && s.idle(t) {
			switch {
			case t.Every > 0:
				err = s.onSchedule(t)
			case t.Changed != "" && !s.now().Before(rested[n]):
				began := time.Now()
				err = s.onChange(ctx, t)
				rested[n] = s.now().Add(restFactor * time.Since(began))
			}
		}
		if !errors.Is(err, errNotDue) && !errors.Is(err, errs.ErrNotFound) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// onSchedule submits a job of a trigger with a schedule if it is due. It submits only one, however many times
// of the schedule have passed without a worker.
func (s *Store) onSchedule(t *storedTrigger) error {
	now := s.now()
	if now.Before(t.Next) {
		return nil
	}
	due := t.Next
	_, err := s.fire(t.Number, due.Format(time.RFC3339Nano), func(t *storedTrigger) error {
		if !t.Next.Equal(due) {
			return errNotDue
		}
		late := now.Sub(due)
		t.Next = due.Add(late - late%t.Every + t.Every)
		return nil
	})
	return err
}

// onChange submits a job of a trigger on files if these have changed since the trigger's last job, but not
// within the last seconds (quiet).
func (s *Store) onChange(ctx context.Context, t *storedTrigger) error {
	state, newest, err := stateOf(ctx, t.Workspace, t.Changed, mostSearched)
	if err != nil || state == t.Seen || s.now().Sub(newest) < quiet {
		return err
	}
	_, err = s.fire(t.Number, fmt.Sprintf("%d after %.16s", t.Last, state), func(now *storedTrigger) error {
		if now.Seen != t.Seen || now.Last != t.Last {
			return errNotDue
		}
		now.Seen = state
		return nil
	})
	return err
}

// stateOf returns a digest of the files of the workspace that pattern matches, made of the data of their
// inodes, and the newest change time. By it a trigger, which submits jobs automatically, notices changed
// files. Symbolic links are not followed. Files that cannot be read are left out. Errors: ErrInvalid if the search
// meets more than most files and directories; that of ctx.
func stateOf(ctx context.Context, workspace, pattern string, most int) (state string, newest time.Time, err error) {
	hash, start := sha256.New(), startOf(workspace, pattern)
	err = filepath.WalkDir(start, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if most--; most < 0 {
			return errs.New("searching for changed files in", start, errs.ErrInvalid,
				"the directory has too many files to search for "+pattern+"; begin the pattern with a smaller directory")
		}
		if err != nil || d.IsDir() || !pathlist.Match(workspace, pattern, path) {
			return nil //nolint:nilerr // see above
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		changed := info.ModTime()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			fmt.Fprintf(hash, "%d ", st.Ino)
			if c := changeTime(st); c.After(changed) {
				changed = c
			}
		}
		fmt.Fprintf(hash, "%q %d %d %v\n", path, info.Size(), changed.UnixNano(), info.Mode())
		if changed.After(newest) {
			newest = changed
		}
		return nil
	})
	return hex.EncodeToString(hash.Sum(nil)), newest, err
}

// startOf returns the deepest directory, or the file, that contains everything in workspace that pattern
// matches. A trigger, which submits a job when such files change, searches only that. startOf follows no symbolic link:
// it returns the first one on the way, below which no search goes.
func startOf(workspace, pattern string) string {
	if !filepath.IsAbs(pattern) {
		if !strings.Contains(pattern, "/") && strings.ContainsAny(pattern, "*?[") {
			return workspace
		}
		pattern = filepath.Join(workspace, pattern)
	}
	rest := strings.TrimPrefix(filepath.Clean(pattern), workspace+"/")
	start := workspace
	for part := range strings.SplitSeq(rest, "/") {
		next := filepath.Join(start, part)
		info, err := os.Lstat(next)
		if strings.ContainsAny(part, "*?[\\") || err != nil {
			break
		}
		if start = next; info.Mode().Type() == fs.ModeSymlink {
			break
		}
	}
	return start
}
