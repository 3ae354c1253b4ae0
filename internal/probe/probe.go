package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Answer is what a probe found.
type Answer int

// The answers. Unknown is the zero value: what was not tried is not there.
const (
	Unknown Answer = iota
	Yes
	No
)

func (a Answer) String() string { return [...]string{"unknown", "yes", "no"}[a] }

// Result is an answer with its reason.
type Result struct {
	Answer Answer
	// Why says how it was found, or what stands in the way: a clause, lower
	// case, without a stop. It may be empty for Yes.
	Why string
	// Fix are the commands that mend a No or Unknown, best first, ready to be
	// pasted into a shell of the user who asked.
	Fix []string
}

// Probe is one power a host may have.
type Probe struct {
	// Name is short, unique and stable: scripts may look for it.
	Name string
	// What describes the use of the feature in a few words.
	What string
	// Since is the least Linux that can have it, as "5.11".
	Since string
	// Run tries it in miniature, as this user, and takes everything back. It
	// costs a few milliseconds at most.
	Run func(context.Context) Result
}

func yes(why string) Result { return Result{Answer: Yes, Why: why} }

func no(why string, fix ...string) Result { return Result{No, why, fix} }

func unknown(why string, fix ...string) Result { return Result{Unknown, why, fix} }

// asRoot makes a command one that root runs.
func asRoot(command string) string {
	if os.Geteuid() == 0 {
		return command
	}
	return "sudo " + command
}

// place is the directory that the caller asks about.
type place struct{ dir string }

const probePrefix = ".snapfs-probe-"

// scratch makes a directory on the filesystem of the place. What probes that
// were killed left there is removed.
func (p place) scratch() (string, error) {
	dir := p.dir
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			break
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	left, _ := filepath.Glob(dir + "/" + probePrefix + "*")
	for _, path := range left {
		if st, err := os.Lstat(path); err == nil && time.Since(st.ModTime()) > time.Hour {
			removeScratch(path)
		}
	}
	return os.MkdirTemp(dir, probePrefix)
}

// within runs try with an empty directory of the place.
func (p place) within(ctx context.Context, try func(dir string) Result) Result {
	if err := ctx.Err(); err != nil {
		return unknown(err.Error())
	}
	dir, err := p.scratch()
	if err != nil {
		return unknown("no directory to try it in: " + err.Error())
	}
	defer removeScratch(dir)
	return try(dir)
}

// removeScratch also removes what overlayfs keeps in its work directory, which
// only root may enter. What it cannot remove, a later probe tries again.
func removeScratch(dir string) {
	_ = os.Chmod(filepath.Join(dir, "work", "work"), 0o700)
	_ = os.RemoveAll(dir)
}
