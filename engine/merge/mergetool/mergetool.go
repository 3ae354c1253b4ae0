// Package mergetool runs the merge tool that a user has chosen on the three versions (base, sandbox and real
// tree) of one conflicting file.
package mergetool

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// Terminal holds the three standard streams that connect a merge tool, run for a person, to the terminal. The
// tool finds a stream closed where the field is nil.
type Terminal struct {
	In       io.Reader
	Out, Err io.Writer
}

// Versions has functions that open the three versions of a conflicting file for a merge tool. Each may return
// nil for a missing version.
type Versions struct {
	Base, Mine, Real func() (io.ReadCloser, error)
}

// Run runs a merge tool on the file at path, in the private directory dir, which it makes and
// removes, and moves the result to out. The tool is a shell command that finds the names of four
// files in $BASE, $MINE, $REAL and $OUT; if it contains no $, they are its arguments. It must
// create $OUT and exit with status 0. terminal may be nil. Errors: ErrConflict unless the cause
// has another kind; then there is no out.
func Run(ctx context.Context, tool string, terminal *Terminal, files Versions, dir, path, out string) error {
	fail := func(err error) error {
		kind := errs.KindOf(err)
		if kind == nil {
			kind = errs.ErrConflict
		}
		return &errs.Error{Op: "running the merge tool", Path: path, Kind: kind, Err: err}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // or the next use does
	env := os.Environ()
	var args []string
	for _, f := range []struct {
		name string
		open func() (io.ReadCloser, error)
	}{{"base", files.Base}, {"mine", files.Mine}, {"real", files.Real}, {"out", nil}} {
		at := filepath.Join(dir, f.name+extension(path))
		if f.open != nil {
			if err := CopyTo(at, f.open); err != nil {
				return fail(err)
			}
		}
		env, args = append(env, strings.ToUpper(f.name)+"="+at), append(args, at)
	}
	script := tool
	if !strings.Contains(script, "$") {
		script += ` "$@"`
	}
	p := run.Program{Name: "sh", Args: append([]string{"-c", script, "tool"}, args...), Env: env, Dir: dir}
	if terminal != nil {
		p.Stdin, p.Stdout, p.Stderr = terminal.In, terminal.Out, terminal.Err
	}
	if err := run.Run(ctx, p); err != nil {
		return fail(err)
	}
	made := args[len(args)-1]
	if info, err := os.Lstat(made); err != nil || !info.Mode().IsRegular() {
		return fail(errors.New("the tool has not created $OUT"))
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		return fail(err)
	}
	if err := os.Rename(made, out); err != nil {
		return fail(err)
	}
	return nil
}

// extension returns the extension of path, by which a merge tool recognises the language of a file. It returns "" for
// one with other characters than letters and digits: a sandbox may have chosen the name, and the shell would split it
// into further arguments where the user's command has $MINE without quotes.
func extension(path string) string {
	ext := filepath.Ext(path)
	if strings.ContainsFunc(strings.TrimPrefix(ext, "."), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return ""
	}
	return ext
}

// CopyTo writes one version of a conflicting file, which open returns, to the new file at path. A missing
// version (nil) becomes an empty file, which merge tools expect.
func CopyTo(path string, open func() (io.ReadCloser, error)) error {
	src, err := open()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, closeIf(src))
	}
	if src != nil {
		_, err = io.Copy(dst, src)
	}
	return errors.Join(err, dst.Close(), closeIf(src))
}

// closeIf closes c, a version of a conflicting file, unless it is nil.
func closeIf(c io.Closer) error {
	if c == nil {
		return nil
	}
	return c.Close()
}
