//go:build linux

package zfs

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// zfsCmd runs the command zfs(8) with args and returns its standard output. Cost: a process, which takes some
// 5 ms, and for a change a transaction group. The program is killed when ctx ends or this process is killed;
// its change may then have happened or not. Errors: *errs.Error.
func zfsCmd(ctx context.Context, args ...string) (string, error) { return zfsWith(ctx, "", args...) }

// zfsWith runs zfs(8), with input as its standard input, and returns its standard output. Cost
// and errors are those of zfsCmd.
func zfsWith(ctx context.Context, input string, args ...string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	var out strings.Builder
	err := run.Run(ctx, run.Program{
		Name: "zfs", Args: args, Env: append(os.Environ(), "LC_ALL=C"), Stdin: strings.NewReader(input), Stdout: &out, Mortal: true,
	})
	return out.String(), errorOf(err)
}

// checkRunning returns ErrCorrupt if the pool of a dataset is suspended. A process that writes
// to a suspended pool, or waits for it, blocks and cannot even be killed, so every method
// checks first. It reads the kstat spa_state in /proc, which does not block (OpenZFS 0.8).
func checkRunning(dataset string) error {
	pool := poolOf(dataset)
	// A pool that does not exist has no such file; the next call reports that.
	state, _ := os.ReadFile(kstats + "/" + pool + "/state")
	if strings.TrimSpace(string(state)) != "SUSPENDED" {
		return nil
	}
	return &errs.Error{
		Kind: errs.ErrCorrupt, Path: dataset, Err: errors.New("the pool " + pool + " is suspended, because a disk of it fails: every access would block until it resumes"),
		Hints: []string{"zpool status " + pool, "sudo zpool clear " + pool + "   # when the disk is back"},
	}
}

// kstats is the directory in which the kernel has a subdirectory for each imported ZFS pool, with its state
// (OpenZFS 0.8). It is a variable for tests.
var kstats = "/proc/spl/kstat/zfs"

// checkImported returns ErrNotFound if the pool of a dataset is not imported: it was exported, or its
// disk is not connected.
func checkImported(dataset string) error {
	pool := poolOf(dataset)
	_, known := os.Lstat(kstats)
	_, err := os.Lstat(kstats + "/" + pool)
	if known == nil && errors.Is(err, os.ErrNotExist) {
		return &errs.Error{
			Kind: errs.ErrNotFound, Path: dataset, Err: errors.New("the pool " + pool + " is not imported"),
			Hints: []string{"sudo zpool import " + pool},
		}
	}
	return nil // the next call reports other errors
}

// movedError returns the error for a snapshot or fork, described by m, whose captured dataset does not exist
// although its pool does: it was renamed or destroyed, or another pool has that name. The snapshot or fork
// stays listed.
func movedError(m mark) error {
	return &errs.Error{
		Kind: errs.ErrNotFound, Path: m.dataset,
		Err: errors.New("the captured dataset " + m.source + " does not exist: it was renamed, or " + poolOf(m.source) + " is another pool of that name"),
		Hints: []string{
			"zfs list -H -r -t all -o name " + poolOf(m.source) + " | grep " + m.unique + "   # its present name",
			"sudo zfs rename NAME " + m.source,
		},
	}
}

// missingDataset returns the reason why the dataset of the snapshot or fork that m describes does not exist.
// It starts no program if the kernel can answer.
func missingDataset(m mark) error {
	if err := checkImported(m.dataset); err != nil {
		return err
	}
	if there, known := exists(m.source); known && !there {
		return movedError(m)
	}
	return notFound("not found")
}

// errorOf returns an error of running zfs(8) as an *errs.Error, of the kind that the program's message means.
func errorOf(err error) error {
	var e *run.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, run.ErrMissing):
		return noProgram(err)
	case !errors.As(err, &e) || e.Code < 0:
		return err
	}
	for line := range strings.Lines(e.Stderr) {
		if kind := kindOfLine(strings.TrimSuffix(line, "\n")); kind != nil {
			return &errs.Error{Kind: kind, Err: e, Hints: hintsOfKind(kind)}
		}
	}
	return &errs.Error{Kind: errs.ErrNotSupported, Err: e}
}

func hintsOfKind(kind error) []string {
	if errors.Is(kind, errs.ErrCorrupt) {
		return []string{"zpool status -x"}
	}
	return nil
}

// kindOfLine returns the error kind for an error line of zfs(8), such as
//
//	cannot destroy 'tank/home@s1': dataset is busy
//
// It compares the end of the line with the texts of libzfs_error_description
// (lib/libzfs/libzfs_util.c of OpenZFS 2.1, in the C locale) and of the command itself.
func kindOfLine(line string) error {
	// A name may contain a colon and a blank; the texts at the end do not.
	why := line
	if at := strings.LastIndex(line, ": "); strings.HasPrefix(line, "cannot ") {
		why = line[at+len(": "):]
	}
	switch why {
	case "dataset does not exist", "no such pool or dataset", "could not find any snapshots to destroy; check snapshot names.",
		"snapshot does not exist", "no such pool":
		return errs.ErrNotFound
	case "parent does not exist":
		return errNoParent
	case "dataset already exists", "tag already exists on this dataset":
		return errs.ErrExists
	case "dataset is busy", "pool or dataset is busy", "pool is busy", "filesystem has children", "filesystem has dependent clones",
		"snapshot has dependent clones", "snapshot is cloned":
		return errs.ErrBusy
	case "permission denied":
		return errs.ErrDenied
	case "out of space", "dataset quota exceeded", "disk quota exceeded":
		return errs.ErrNoSpace
	case "pool is read-only", "dataset is read-only", "pool is read only":
		return errs.ErrReadOnly
	case "no such tag on this dataset":
		return errNoTag
	case "I/O error", "pool I/O is currently suspended", "pool is unavailable", "one or more devices is currently unavailable",
		"pool cannot be accessed", "bad exchange descriptor", "invalid vdev configuration", "corrupted data":
		return errs.ErrCorrupt
	case "Permission denied the ZFS utilities must be run as root.":
		return errs.ErrDenied
	case "The ZFS modules are not loaded.":
		return errs.ErrNotSupported
	}
	return nil
}

var (
	errNoParent = &errs.Error{Kind: errs.ErrNotFound, Err: errors.New("the parent does not exist")}
	errNoTag    = &errs.Error{Kind: errs.ErrNotFound, Err: errors.New("the snapshot has no hold")}
)
