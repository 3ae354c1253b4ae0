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

// zfs runs zfs(8) and answers with its standard output. Cost: a process, which
// takes some 5 ms, and where it changes something a transaction group. When ctx
// ends, or this process is killed, so is the program, and what it was about may have happened or not.
// Errors: *problem.
func zfsCmd(ctx context.Context, args ...string) (string, error) { return zfsWith(ctx, "", args...) }

// zfsWith is zfs with a text for its standard input.
func zfsWith(ctx context.Context, input string, args ...string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	var out strings.Builder
	err := run.Run(ctx, run.Program{
		Name: "zfs", Args: args, Env: append(os.Environ(), "LC_ALL=C"), Stdin: strings.NewReader(input), Stdout: &out, Mortal: true,
	})
	return out.String(), understood(err)
}

// running says that the pool of a dataset is suspended: who writes to it then, or waits for
// it, does so until it goes on, and cannot even be killed. So it is asked first; /proc tells without waiting (the
// kstat spa_state of OpenZFS 0.8). ErrCorrupt.
func running(dataset string) error {
	pool := poolOf(dataset)
	// Nothing: there is no such pool, which who looks for it finds out.
	state, _ := os.ReadFile(kstats + "/" + pool + "/state")
	if strings.TrimSpace(string(state)) != "SUSPENDED" {
		return nil
	}
	return &problem{
		kind: errs.ErrCorrupt, path: dataset, why: "the pool " + pool + " is suspended, since a disk of it fails: whoever waits for it waits until it goes on",
		hints: []string{"zpool status " + pool, "sudo zpool clear " + pool + "   # when the disk is back"},
	}
}

// kstats has a directory for each pool that is imported (OpenZFS 0.8).
var kstats = "/proc/spl/kstat/zfs"

// imported says that the pool of a dataset is not there: exported, or on a disk that is not
// plugged in. ErrNotFound.
func imported(dataset string) error {
	pool := poolOf(dataset)
	_, known := os.Lstat(kstats)
	_, err := os.Lstat(kstats + "/" + pool)
	if known == nil && errors.Is(err, os.ErrNotExist) {
		return &problem{
			kind: errs.ErrNotFound, path: dataset, why: "the pool " + pool + " is not imported",
			hints: []string{"sudo zpool import " + pool},
		}
	}
	return nil // or who looks for it finds out
}

// moved says that the dataset that was captured is not there, while its pool is: it was renamed, or
// destroyed, or this is another pool of that name. Nothing is forgotten for that.
func moved(m mark) error {
	return &problem{
		kind: errs.ErrNotFound, path: m.dataset,
		why: "the dataset " + m.source + ", which was captured, is not there: it was renamed, or " + poolOf(m.source) + " is another pool of that name",
		hints: []string{
			"zfs list -H -r -t all -o name " + poolOf(m.source) + " | grep " + m.unique + "   # where it is now",
			"sudo zfs rename NAME " + m.source,
		},
	}
}

// lost says why there is no such dataset as a mark names, without starting a program where the kernel can tell.
func lost(m mark) error {
	if err := imported(m.dataset); err != nil {
		return err
	}
	if there, known := exists(m.source); known && !there {
		return moved(m)
	}
	return notFound("not found")
}

// understood makes what zfs(8) said an error with a kind.
func understood(err error) error {
	var e *run.Error
	var missing *run.MissingError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return noProgram(err)
	case !errors.As(err, &e) || e.Code < 0:
		return err
	}
	for line := range strings.Lines(e.Stderr) {
		if kind := kindOfLine(strings.TrimSuffix(line, "\n")); kind != nil {
			return &problem{kind: kind, why: e.Error(), hints: hintsOfKind(kind)}
		}
	}
	return &problem{kind: errs.ErrNotSupported, why: e.Error()}
}

func hintsOfKind(kind error) []string {
	if errors.Is(kind, errs.ErrCorrupt) {
		return []string{"zpool status -x"}
	}
	return nil
}

// kindOfLine reads a line such as
//
//	cannot destroy 'tank/home@s1': dataset is busy
//
// whose end is one of the texts of
// libzfs_error_description (lib/libzfs/libzfs_util.c of OpenZFS 2.1, in the C
// locale), or one of those that the command itself has.
func kindOfLine(line string) error {
	// A name may hold a colon and a blank too, but what zfs(8) says at the end
	// holds none.
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
	errNoParent = &problem{kind: errs.ErrNotFound, why: "the parent does not exist"}
	errNoTag    = &problem{kind: errs.ErrNotFound, why: "it is not held"}
)
