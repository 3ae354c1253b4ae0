package isolate

import (
	"errors"
	"os"
	"path"
	"strings"
	"syscall"
)

// A Command is a program to run in a box.
type Command struct {
	// Args are the program's name and arguments; at least the name. A name
	// without a slash is looked for in the PATH of Env, inside the box.
	Args []string
	// Env is the whole environment, "name=value" each.
	Env []string
	// Dir is the working directory inside the box: absolute.
	Dir string
	// UID, GID and Groups are who runs it, by the ids inside. Under [Same] they
	// are not used: it is the caller's own user and groups.
	UID, GID uint32
	Groups   []uint32
	// Stdin, Stdout and Stderr are handed over as they are, and stay the
	// caller's to close. Nil is the terminal with TTY, and /dev/null without.
	// None may be a directory: from one, all of the host could be reached.
	Stdin, Stdout, Stderr *os.File
	// TTY gives the program a terminal of the box's own, of this size, as its
	// controlling terminal. See [Process.PTY].
	TTY *Size
}

// Size is that of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Status is how a process ended.
type Status struct {
	// Code is the exit status, when Signal is 0.
	Code int
	// Signal is what killed it, or 0.
	Signal syscall.Signal
	// CoreDump: the kernel wrote its memory to a file.
	CoreDump bool
}

// ExitCode is the status as a shell reports it: 128 and the signal's number
// for a process that was killed.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

func (c *Command) check(spec Spec) error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return badCommand("no program is named")
	}
	for _, list := range [][]string{c.Args, c.Env, {c.Dir}} {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return badCommand("an argument holds a NUL")
			}
		}
	}
	if !path.IsAbs(c.Dir) {
		return badCommand("the working directory is not absolute")
	}
	if spec.IDs != Same && (c.UID >= spec.IDs.size || c.GID >= spec.IDs.size) {
		return badCommand("the user is none of the sandbox's")
	}
	files, _ := c.files()
	for _, f := range files {
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return badCommand("its input or output is a directory: " + f.Name())
		}
	}
	return nil
}

func badCommand(why string) error {
	return &Error{Op: "checking the command", Kind: ErrInvalid, Err: errors.New(why)}
}

// files are the streams that are handed over, and their places.
func (c *Command) files() (files []*os.File, places []int) {
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			files, places = append(files, f), append(places, i)
		}
	}
	return files, places
}
