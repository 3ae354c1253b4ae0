package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Answer is the outcome of a probe: Yes, No or Unknown.
type Answer int

// The outcomes of a probe. Unknown, the zero value, stands for a feature that could not be
// tried.
const (
	Unknown Answer = iota
	Yes
	No
)

func (a Answer) String() string { return [...]string{"unknown", "yes", "no"}[a] }

// A Result is the outcome of a probe with its reason.
type Result struct {
	Answer Answer
	// Why says how the probe found the answer, or the obstacle: a clause in lower case without
	// a full stop. It may be empty for Yes.
	Why string
	// Fix lists shell commands that change a No or Unknown to Yes, best first, for the user
	// who ran the probe.
	Fix []string
}

// A Probe tests for one feature of a host.
type Probe struct {
	// Name is short, unique and stable, so that scripts can rely on it.
	Name string
	// What describes the use of the feature in a few words.
	What string
	// Since is the first Linux version with the feature, as "5.11".
	Since string
	// Run uses the feature once, as this user, and removes the results. Cost: a few
	// milliseconds at most.
	Run func(context.Context) Result
}

func yes(why string) Result { return Result{Answer: Yes, Why: why} }

func no(why string, fix ...string) Result { return Result{No, why, fix} }

func unknown(why string, fix ...string) Result { return Result{Unknown, why, fix} }

// asRoot returns the command prefixed with sudo unless this user is root.
func asRoot(command string) string {
	if os.Geteuid() == 0 {
		return command
	}
	return "sudo " + command
}

// place is a directory, on whose filesystem the probes that need one work.
type place struct{ dir string }

const probePrefix = ".snapfs-probe-"

// scratch makes a temporary directory on the filesystem of the place. It removes those that
// killed probes left.
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

// within calls try with a new empty directory of the place and removes it.
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

// removeScratch removes a temporary directory, also overlayfs's work directories, which only
// root may enter. A later probe retries what it cannot remove.
func removeScratch(dir string) {
	_ = os.Chmod(filepath.Join(dir, "work", "work"), 0o700)
	_ = os.RemoveAll(dir)
}
