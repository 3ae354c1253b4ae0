package copier

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// A Copied is the result of copying files into or out of a sandbox: how many files and bytes, and which were
// left out.
type Copied struct {
	// To is the file or directory that was written.
	To string `json:"to"`
	// Files counts the files of any type but directories, and Bytes their bytes.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Skipped lists devices, sockets and pipes, which are not copied.
	Skipped []string `json:"skipped,omitempty"`
}

// Out copies the file or directory at path from in the sandbox called name to the host's path to: into it if
// it is a directory, else to that name. It replaces files, follows no symbolic link, keeps modes and times,
// and drops set-user-id and set-group-id bits; the files belong to this user. Paths are absolute. After an
// error, some files may be copied.
func Out(ctx context.Context, e *engine.Engine, name, from, to string) (Copied, error) {
	c := Copied{To: to}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		c.To = filepath.Join(to, path.Base(from))
	}
	if info, err := os.Stat(c.To); err == nil && !info.IsDir() && !info.Mode().IsRegular() { // /dev/null, for example
		return c, errs.New("copying to", c.To, errs.ErrInvalid, "it is a device, a pipe or a socket, which a copy would replace")
	}
	dir, err := os.OpenRoot(filepath.Dir(c.To))
	if err != nil {
		return c, failure("copying to", to, err)
	}
	defer dir.Close() //nolint:errcheck // a descriptor of a directory
	r, w, err := os.Pipe()
	if err != nil {
		return c, err
	}
	defer r.Close()
	unpacked := make(chan error, 1)
	go func() {
		err := unpack(r, dir, filepath.Base(c.To), &c)
		_, rest := io.Copy(io.Discard, r) // so that tar can end
		unpacked <- errors.Join(err, rest)
	}()
	err = runTar(ctx, e, "copying", name, from, engine.Command{Stdout: w, Args: []string{"tar", "-cf", "-", "-C", path.Dir(from), "--", member(from)}}, w)
	if failed := <-unpacked; err == nil {
		err = failure("copying to", c.To, failed)
	}
	return c, err
}

// member returns the name of the absolute path from in its directory, as tar takes it.
func member(from string) string {
	if base := path.Base(from); base != "/" {
		return base
	}
	return "."
}

// In copies the host's file or directory from to the path to in the sandbox called name, by the same rules as
// [Out].
func In(ctx context.Context, e *engine.Engine, name, from, to string) (Copied, error) {
	c := Copied{To: to}
	if _, err := os.Lstat(from); err != nil {
		return c, failure("copying", from, err)
	}
	status, _, err := inside(ctx, e, name, engine.Command{Args: []string{"test", "-d", to}}, nil)
	if err != nil {
		return c, err
	}
	if status == 0 {
		c.To = path.Join(to, filepath.Base(from))
	}
	err = Unpack(ctx, e, "copying", name, path.Dir(c.To), func(w io.Writer) error {
		return failure("copying", from, pack(w, from, path.Base(c.To), &c))
	})
	return c, err // Unpack changes c
}

// Unpack runs tar in the sandbox called name to unpack an archive in its directory dir, with the rights of any
// command there. write writes the archive. op says what is done, for errors. After an error, some files may be
// unpacked. Errors: errs.ErrNotFound (no directory dir), errs.ErrNotSupported (tar failed), those of write and
// of starting a command.
func Unpack(ctx context.Context, e *engine.Engine, op, name, dir string, write func(w io.Writer) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() { written <- errors.Join(write(w), w.Close()) }()
	err = runTar(ctx, e, op, name, dir, engine.Command{Stdin: r, Args: []string{"tar", "-xpf", "-", "--no-same-owner", "-C", dir}}, r)
	return cmp.Or(err, <-written) // write fails too if nobody reads the archive
}

// runTar runs tar in the sandbox called name, connected to this process by a pipe, of which it closes the end
// ours. at is the path in the sandbox that tar reads, or the directory that it writes to. If tar fails, the error
// contains op and the first line that tar printed, or errs.ErrNotFound with at.
func runTar(ctx context.Context, e *engine.Engine, op, name, at string, command engine.Command, ours *os.File) error {
	status, said, err := inside(ctx, e, name, command, ours)
	if err != nil || status == 0 {
		return err
	}
	first, _, _ := strings.Cut(said, "\n")
	if strings.Contains(first, "No such file or directory") {
		return errs.New(op, name+":"+at, errs.ErrNotFound, "no such file or directory")
	}
	return errs.New(op, name, errs.ErrNotSupported, cmp.Or(first, "tar ended with an error"))
}

// inside runs a command in the sandbox called name to its end, and returns its exit status and its standard
// error output. It closes ours, the command's end of a pipe, once the command has started.
func inside(ctx context.Context, e *engine.Engine, name string, command engine.Command, ours *os.File) (status int, said string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, "", err
	}
	defer r.Close()
	command.Env, command.Dir, command.Stderr = append(hostfs.Environ(os.Environ(), nil), "LC_ALL=C"), "/", w
	p, err := e.Supervise.Exec(ctx, name, command)
	w.Close()
	if ours != nil {
		ours.Close()
	}
	if err != nil {
		return 0, "", err
	}
	text, _ := io.ReadAll(r) // until the command has ended
	st, err := p.Wait(ctx)
	return st.ExitCode(), strings.TrimSpace(string(text)), errors.Join(err, p.Close())
}
