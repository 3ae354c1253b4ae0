package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/errs"
)

// An Error is the failure of a program that this package ran. It is a type because callers decide by the exit
// status and by the lines of the program's standard error.
type Error struct {
	// Name is the program.
	Name string
	// Stderr holds the first lines of the program's standard error.
	Stderr string
	// Code is the program's exit status, or -1 if a signal or the context ended it.
	Code int
	// Err is the cause.
	Err error
}

func (e *Error) Error() string {
	why := strings.ReplaceAll(e.Stderr, "\n", "; ")
	switch {
	case why != "":
	case e.Code > 0:
		why = "exit status " + strconv.Itoa(e.Code)
	default:
		why = e.Err.Error()
	}
	return e.Name + ": " + why
}

// Unwrap returns the cause of the program's failure besides its exit status, such as context.Canceled, or
// nil.
func (e *Error) Unwrap() error { return e.Err }

// ErrMissing means that a program is not installed. Its error is an [*errs.Error] of the kind
// errs.ErrNotFound; the Path is the program's name, the hint the command that installs it.
var ErrMissing = errors.New("not installed")

func missing(name string, fix ...string) error {
	return &errs.Error{Path: name, Kind: errs.ErrNotFound, Err: ErrMissing, Hints: fix}
}

// Look returns the path of the program name. Besides PATH it searches the administrator's directories, such
// as /usr/sbin, that an ordinary user's PATH leaves out. Errors: ErrMissing.
func Look(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if !strings.Contains(name, "/") {
		for _, dir := range []string{"/usr/sbin/", "/sbin/", "/usr/local/sbin/"} {
			if path, err := exec.LookPath(dir + name); err == nil {
				return path, nil
			}
		}
	}
	return "", missing(name, fix(name)...)
}

// fix returns the command that installs the Debian package with the program name, such as "apt-get install
// btrfs-progs", as the hint of an error. It returns nil for a program that it does not know.
func fix(name string) []string {
	var pkg string
	switch name {
	case "mkfs.btrfs", "btrfs":
		pkg = "btrfs-progs"
	case "mkfs.ext4", "resize2fs":
		pkg = "e2fsprogs"
	case "zfs", "zpool":
		pkg = "zfsutils-linux"
	case "mkfs.xfs":
		pkg = "xfsprogs"
	case "newuidmap", "newgidmap":
		pkg = "uidmap"
	case "useradd", "userdel":
		pkg = "passwd"
	case "bwrap":
		pkg = "bubblewrap"
	case "systemd-nspawn":
		pkg = "systemd-container"
	case "fusermount3":
		pkg = "fuse3"
	case "git", "crun", "runc", "fuse-overlayfs":
		pkg = name
	default:
		return nil
	}
	return []string{"apt-get install " + pkg}
}

// Output runs a program to its end and returns its standard output. The program has no standard input and the C
// locale. When ctx ends, the program is killed. Errors: ErrMissing, *Error.
func Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := Run(ctx, Program{Name: name, Args: args, Env: append(os.Environ(), "LC_ALL=C"), Stdout: &out})
	return out.Bytes(), err
}

// A Program says which other program to run and how: arguments, environment, directory, streams and user.
type Program struct {
	// Name is resolved by [Look].
	Name string
	Args []string
	// Env is its whole environment; nil is that of this process.
	Env []string
	// Dir is its working directory; "" is that of this process.
	Dir string
	// Stdin, Stdout and Stderr may be nil: empty, discarded, and collected only for the error.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// As holds the ids to start the program with, which needs root; nil means those of this
	// process.
	As *IDs
	// Mortal makes the kernel kill the program when this process is killed, on Linux. System
	// calls of the program may still complete.
	Mortal bool
}

// IDs are the user and group ids with which to start a program, without supplementary groups.
type IDs struct{ UID, GID int }

// Run runs a program to its end. When ctx ends, the program is killed, but not its descendants. Errors:
// ErrMissing, *Error.
func Run(ctx context.Context, p Program) error {
	path, err := Look(p.Name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, p.Args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout = p.Env, p.Dir, p.Stdin, p.Stdout
	// WaitDelay also limits the wait for output after the program has ended: if hundreds end at once on few
	// processors, reading it takes more than a second.
	cmd.WaitDelay = 8 * time.Second
	stderr := &head{max: 2048}
	cmd.Stderr = stderr
	if p.Stderr != nil {
		cmd.Stderr = io.MultiWriter(stderr, p.Stderr)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if p.Mortal {
		// The parent-death signal is sent when the parent's thread ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = mortal()
	}
	if p.As != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.As.UID), Gid: uint32(p.As.GID)}
	}
	if err := cmd.Run(); err != nil {
		return failure(ctx, p.Name, p.Args, stderr, err)
	}
	return nil
}

func failure(ctx context.Context, name string, args []string, stderr *head, err error) error {
	e := &Error{Name: name, Stderr: stderr.lines(5), Code: -1, Err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		// exec.ExitError has a method ExitCode, which errs.ExitCode would take for the status of snapfs.
		e.Code, e.Err = exit.ExitCode(), errors.New(exit.Error())
	}
	if ctx.Err() != nil {
		e.Err = ctx.Err()
	}
	return e
}

// A head is an io.Writer that stores the first max bytes written to it and discards all others, for the
// standard error of a program.
type head struct {
	buf []byte
	max int
}

func (h *head) Write(p []byte) (int, error) {
	h.buf = append(h.buf, p[:min(len(p), h.max-len(h.buf))]...)
	return len(p), nil
}

func (h *head) lines(n int) string {
	var kept []string
	for line := range strings.Lines(string(h.buf)) {
		if line = strings.TrimSpace(line); line != "" && len(kept) < n {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
