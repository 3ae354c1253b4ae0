package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// An Answer says whether this host has a feature: Yes, No or Unknown.
type Answer int

// The answers of a probe: whether this host has the feature. Unknown, the zero value, stands for a feature
// that could not be tried.
const (
	Unknown Answer = iota
	Yes
	No
)

func (a Answer) String() string { return [...]string{"unknown", "yes", "no"}[a] }

// A Result is the answer of a probe, with the reason and the commands that would change it.
type Result struct {
	Answer Answer
	// Why says how the probe found the answer, or the obstacle: a clause in lower case without
	// a full stop. It may be empty for Yes.
	Why string
	// Fix lists shell commands that change a No or Unknown to Yes, best first, for the user
	// who ran the probe.
	Fix []string
}

// A Probe finds out whether a host has one feature, such as id-mapped mounts. `snapfs doctor` runs all probes
// and prints their results.
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

// asRoot returns a shell command, which a probe's result suggests, prefixed with sudo, or unchanged if this
// user is root.
func asRoot(command string) string {
	if os.Geteuid() == 0 {
		return command
	}
	return "sudo " + command
}

// A place is the directory on whose filesystem the probes try features, such as the state directory. It need
// not exist yet.
type place struct{ dir string }

const probePrefix = ".snapfs-probe-"

// scratch makes a temporary directory in the place, or in its nearest existing parent. It first removes
// temporary directories of killed probes, those older than an hour.
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

// within calls try, by which a probe tries a feature of the filesystem, with a new empty directory in the
// place, and removes the directory afterwards. If it cannot be made, the result is Unknown.
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

// removeScratch removes a probe's temporary directory, including overlayfs's work directories, which only
// root may enter. If something cannot be removed, a later probe tries again.
func removeScratch(dir string) {
	_ = os.Chmod(filepath.Join(dir, "work", "work"), 0o700)
	_ = os.RemoveAll(dir)
}
