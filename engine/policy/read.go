package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// biggest is the maximum size of a profile in bytes; [Read] refuses a larger one. For this size the decoder takes
// half a second. For a file of 1 MiB with 100,000 keys, which a stranger's repository may hold, it takes 45 s.
const biggest = 128 << 10

// Trust says which owners and permissions [Read] accepts for the file of a profile. The stricter ones are for
// profiles that nobody named but whose commands run.
type Trust int

const (
	// Found is for a profile that snapfs found in a default location. Its commands run on the host, so the
	// file must belong to this user or to root, and not be writable for everybody.
	Found Trust = iota
	// Named is the use of a profile that a person named, so that its content is trusted. The file must not be
	// writable for everybody.
	Named
	// Tightening is the use of a profile that only makes a policy stricter and of which no command runs. Any
	// file is acceptable.
	Tightening
)

// Read reads the profile at an absolute path, or the one with this name, and all profiles that it extends. It
// checks their owners and permissions as trust requires. Errors: [*Error]; errs.ErrNotFound, ErrDenied,
// ErrNotSupported (no regular file, or too large).
func Read(path string, trust Trust) (*Profile, error) {
	c := chain{trust: trust}
	if trust != Named {
		c.root = filepath.Dir(path)
		if real, err := filepath.EvalSymlinks(c.root); err == nil {
			c.root = real
		}
	}
	p, err := c.read(path)
	if err != nil {
		return nil, err
	}
	p.Found = trust == Found
	return p, nil
}

func load(path string, trust Trust) ([]byte, error) {
	// O_NONBLOCK: opening a pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	refuse := func(kind error, why string, hints ...string) error {
		return &errs.Error{Op: "reading the profile", Path: path, Kind: kind, Err: errors.New(why), Hints: hints}
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(errs.ErrNotSupported, "not a regular file")
	}
	if info.Size() > biggest {
		return nil, refuse(errs.ErrNotSupported, "larger than 128 KiB")
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && trust == Found && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, refuse(errs.ErrDenied, "the profile belongs to another user (uid "+strconv.Itoa(int(st.Uid))+"), and its commands would run as you",
			"snapfs promote --profile "+errs.Quoted(path)+" …   # once you have read it")
	}
	if trust != Tightening && info.Mode().Perm()&0o002 != 0 {
		return nil, refuse(errs.ErrDenied, "the profile is writable for everybody, and its commands would run as you", "chmod o-w "+errs.Quoted(path))
	}
	return io.ReadAll(io.LimitReader(f, biggest))
}

func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Parse parses the text of a profile, without reading the profiles that it extends. path is its absolute
// path, or the name of a built-in profile. Errors: [*Error].
func Parse(path string, data []byte) (*Profile, error) {
	r := &reader{data: data, dir: filepath.Dir(path), bad: Error{File: path}}
	r.read()
	if len(r.bad.Mistakes) == 0 {
		r.check()
	}
	if len(r.bad.Mistakes) > 0 {
		return nil, &r.bad
	}
	p := &Profile{Path: path, Sandbox: r.sandbox, Extends: r.extends, About: r.about, Version: r.version, Origins: r.origins}
	for _, s := range r.stages {
		p.Stages = append(p.Stages, s.Stage)
	}
	return p, nil
}

// check completes the stages of a profile with defaults, and records the mistakes that involve more than one
// line.
func (r *reader) check() {
	names, source := map[string]string{}, ""
	for i := range r.stages {
		s := &r.stages[i]
		if s.Timeout == 0 {
			s.Timeout = defaultTimeout
		}
		if s.Approval == "" {
			s.Approval = Auto
		}
		if s.Name == "" {
			r.wrong(s.path, "a stage has no name", `give it one: name = "dev"`)
		} else if first, taken := names[s.Name]; taken {
			r.wrong(s.path+".name", fmt.Sprintf("duplicate stage name %q, first in line %d", s.Name, r.line(first)), "give it another name")
		} else {
			names[s.Name] = s.path + ".name"
		}
		r.checkKind(s, source)
		r.checkTarget(i)
		if s.Target != "" {
			source = s.Target
		}
	}
}

// checkKind records a mistake unless the stage s of a promotion does one of three things: copies to a target
// directory, deploys with a rollback command, or only runs checks. source is the target of an earlier stage,
// whose files a deployment needs, or "".
func (r *reader) checkKind(s *stage, source string) {
	switch {
	case s.Target != "" && s.Deploy != nil:
		r.wrong(s.path+".deploy", "a stage has a target or deploys, not both", "make two stages of it")
	case s.Rollback != nil && s.Deploy == nil:
		r.wrong(s.path+".rollback", "there is nothing to roll back without deploy", "leave it out: snapfs itself reverts a target")
	case s.Deploy != nil && s.Rollback == nil:
		r.wrong(s.path+".deploy", "deploy needs rollback", `add rollback = "…"`)
	case s.Deploy != nil && source == "":
		r.wrong(s.path+".deploy", "no stage before it has a target, so there is nothing to deploy", "put a stage with a target before it")
	case s.Target == "" && s.Deploy == nil && len(s.After) > 0:
		r.wrong(s.path+".after", "a stage without target or deploy has nothing to check after it", "move them to before, or give the stage a target")
	case s.Target == "" && s.Deploy == nil && len(s.Before) == 0:
		r.wrong(s.path, "this stage does nothing", "give it a target, or deploy and rollback, or checks before")
	}
}

// checkTarget records a mistake in the profile if the target directory of stage i of a promotion overlaps
// that of an earlier stage.
func (r *reader) checkTarget(i int) {
	s := &r.stages[i]
	for _, other := range r.stages[:i] {
		if s.Target == "" || other.Target == "" {
			continue
		}
		if within(s.Target, other.Target) || within(other.Target, s.Target) {
			r.wrong(s.path+".target", fmt.Sprintf("%s overlaps the target of %q, %s", s.Target, other.Name, other.Target), "give each stage a directory of its own")
			return
		}
	}
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func isName(s string) bool {
	ok := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'
	}
	for i := range len(s) {
		if !ok(s[i]) || i == 0 && (s[i] == '.' || s[i] == '-') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// position returns the line and column of a byte offset in data, both counted from 1, for a message.
func position(data []byte, offset int) (line, column int) {
	before := data[:offset]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}
