package isolate

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/stdio"
)

// A Command is a program to run in a container, with its environment and standard streams. The caller of
// [Prepare] or [Container.Exec] makes it.
type Command struct {
	// Args are the program's name and arguments; the name is required. A name without a slash is searched in
	// the PATH of Env, inside the container.
	Args []string
	// Env is the whole environment, as "name=value".
	Env []string
	// Dir is the absolute working directory inside the container.
	Dir string
	// UID, GID and Groups are the command's user and groups, as ids inside the container. Under [Same] they are
	// ignored: the command runs as the caller.
	UID, GID uint32
	Groups   []uint32
	// Stdin, Stdout and Stderr are passed to the command unchanged; the caller still closes them. Nil is the
	// terminal if TTY is set, and /dev/null otherwise. None may be a directory, from which the command could
	// reach the whole host, nor a terminal, from which a process could read for as long as the container lives.
	Stdin, Stdout, Stderr *os.File
	// Guarded, if it is not empty, is the path of [Spec.Guarded] whose program this command executes, whatever Args[0]
	// is. Its working directory is DirFile, an O_PATH descriptor, instead of Dir. DirFile, Stdin, Stdout and Stderr are
	// from a process in the container, and may be anything that it had open.
	Guarded string
	DirFile *os.File
	// TTY gives the program a controlling terminal of the container's own, of this size. See [Process.PTY].
	TTY *Size
}

// Size is the size of a terminal in characters, for a command that runs on one.
type Size struct{ Rows, Cols uint16 }

// A Status is how a process of a container ended: with an exit status, or killed by a signal. [Process.Wait]
// returns it.
type Status struct {
	// Code is the exit status, when Signal is 0.
	Code int
	// Signal is the signal that killed the process, or 0.
	Signal syscall.Signal
}

// ExitCode returns the status as a shell reports it: 128 plus the signal's number for a killed process.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

func (c *Command) check(spec Spec) error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return badCommand("no program given")
	}
	for _, list := range [][]string{c.Args, c.Env, {c.Dir}} {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return badCommand("an argument contains a NUL byte")
			}
		}
	}
	guarded := c.Guarded != ""
	if guarded && (c.DirFile == nil || c.TTY != nil || !slices.Contains(spec.Guarded, c.Guarded)) {
		return badCommand("no guarded program, or without a directory: " + c.Guarded)
	}
	if !guarded && !path.IsAbs(c.Dir) {
		return badCommand("the working directory is not absolute")
	}
	if spec.IDs != Same && (!spec.IDs.Has(c.UID) || !spec.IDs.Has(c.GID)) {
		return badCommand("the user id is outside the sandbox's id range")
	}
	files, _ := c.files()
	if guarded {
		files = nil
	}
	for _, f := range files {
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return badCommand("standard input or output is a directory: " + f.Name())
		}
		if stdio.IsTerminal(f) {
			return badCommand("standard input or output is a terminal of the host: " + f.Name())
		}
	}
	return nil
}

func badCommand(why string) error {
	return &errs.Error{Op: "checking the command", Kind: errs.ErrInvalid, Err: errors.New(why)}
}

// files returns those of the command's three standard streams that are set, and for each its descriptor
// number in the command: 0, 1 or 2.
func (c *Command) files() (files []*os.File, places []int) {
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			files, places = append(files, f), append(places, i)
		}
	}
	return files, places
}

// passed returns the files that a request passes to pid 1: the streams that are set, then the working directory of a
// guarded program.
func (c *Command) passed() []*os.File {
	files, _ := c.files()
	if c.Guarded != "" {
		files = append(files, c.DirFile)
	}
	return files
}
