package serve

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
)

// How long a command that an agent runs by [Service.Exec] may take, without a timeout in the request and at
// most. Then the command is ended. Most clients give up a call after a minute.
const (
	usualTimeout = 50 * time.Second
	maxTimeout   = 30 * time.Minute
)

// A CommandLine is the part of a request that describes a command which a coding agent wants to run in a
// sandbox.
type CommandLine struct {
	Sandbox string   `json:"sandbox" jsonschema:"the sandbox's name"`
	Command string   `json:"command,omitempty" jsonschema:"a shell command; or give args"`
	Args    []string `json:"args,omitempty" jsonschema:"a program and its arguments, without a shell; or give command"`
	Dir     string   `json:"dir,omitempty" jsonschema:"the directory to start in, relative to the workspace; by default the workspace"`
}

// command converts a command of a coding agent into the engine's form, with the environment variables that
// the server's [Rules] allow. Errors: ErrInvalid.
func (s *Service) command(c CommandLine) (engine.Command, error) {
	args := c.Args
	switch {
	case (c.Command == "") == (len(args) == 0):
		return engine.Command{}, errs.New("running a command", c.Sandbox, errs.ErrInvalid, "give either command or args")
	case c.Command != "":
		args = inShell(c.Command)
	}
	if slices.ContainsFunc(append([]string{c.Dir}, args...), func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return engine.Command{}, errs.New("running a command", c.Sandbox, errs.ErrInvalid, "an argument contains a zero byte")
	}
	dir := c.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.Rules.Workspace, dir)
	}
	return engine.Command{Args: args, Env: s.environment(), Dir: filepath.Clean(dir)}, nil
}

func inShell(script string) []string { return []string{"/bin/sh", "-c", script} }

// environment returns the environment variables for an agent's commands: harmless ones of this process and
// those that the server's [Rules] set. It adds PATH if the client started the server without one.
func (s *Service) environment() []string {
	env := hostfs.Environ(os.Environ(), s.Rules.Policy.Env)
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return env
}

// An ExecRequest is a coding agent's request to run a command in a sandbox and to wait for its end.
type ExecRequest struct {
	CommandLine
	Stdin    string `json:"stdin,omitempty" jsonschema:"text for the command's standard input, for example a file's content for cat > FILE"`
	TimeoutS int    `json:"timeout_s,omitempty" jsonschema:"end the command after this many seconds; by default 50, at most 1800. Use sandbox_start for what takes longer"`
}

// An Executed is the result of a command that [Service.Exec] ran: its exit status and its output.
type Executed struct {
	Sandbox  string `json:"sandbox"`
	Exit     int    `json:"exit" jsonschema:"the exit status; 128 and the signal's number for a command that a signal ended"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Limit    string `json:"limit,omitempty" jsonschema:"the limit of the sandbox that the command reached"`
	TookMS   int64  `json:"took_ms"`
	Stdout   Text   `json:"stdout"`
	Stderr   Text   `json:"stderr"`
	Output   string `json:"output,omitempty" jsonschema:"if a text has left_out: the name of the whole output for sandbox_output"`
}

// Exec runs a command in a sandbox and waits for its end. At the timeout, and when ctx ends, it ends the command's
// process group. Errors: those of [supervise.Manager.ExecWith]; ErrInterrupted.
func (s *Service) Exec(ctx context.Context, q ExecRequest) (Executed, error) {
	r := Executed{Sandbox: q.Sandbox}
	c, err := s.command(q.CommandLine)
	if err != nil {
		return r, err
	}
	limit, err := timeout(q.TimeoutS, usualTimeout)
	if err != nil {
		return r, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return r, err
	}
	out, err := newOutput(e.Catalog().Path(q.Sandbox))
	if err != nil {
		return r, err
	}
	defer out.close()
	began := time.Now()
	p, err := s.startPiped(ctx, e, q, c, out)
	if err != nil {
		out.drop()
		return r, err
	}
	defer p.Close() //nolint:errcheck // the command has ended, or await says why not
	r.Exit, r.TimedOut, err = Await(ctx, p, limit)
	if err != nil {
		return r, err
	}
	if hit := p.Hit(); hit != nil {
		r.Limit = hit.Limit + " " + hit.Value + ": " + hit.Text
	}
	out.wait()
	r.TookMS = time.Since(began).Milliseconds()
	r.Stdout, r.Stderr = out.stdout.text(), out.stderr.text()
	if r.Stdout.LeftOut+r.Stderr.LeftOut > 0 {
		r.Output = out.name()
	} else {
		out.drop()
	}
	return r, nil
}

// startPiped starts the command c in a sandbox with pipes: its standard input is the text of the request q,
// and its output goes to out.
func (s *Service) startPiped(ctx context.Context, e *engine.Engine, q ExecRequest, c engine.Command, out *output) (supervise.Client, error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	files = append(files, outW)
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, outR.Close())
	}
	files = append(files, errW)
	c.Stdout, c.Stderr = outW, errW
	var inW *os.File
	if q.Stdin != "" {
		var inR *os.File
		if inR, inW, err = os.Pipe(); err != nil {
			return nil, errors.Join(err, outR.Close(), errR.Close())
		}
		files = append(files, inR)
		c.Stdin = inR
	}
	p, err := e.Supervise.ExecWith(ctx, q.Sandbox, c, supervise.ExecOptions{Admission: s.Rules.admission(), EndAtTTL: true})
	if err != nil {
		inW.Close() // nil without input
		return nil, errors.Join(err, outR.Close(), errR.Close())
	}
	out.read(outR, out.stdout)
	out.read(errR, out.stderr)
	if inW != nil {
		out.feed(inW, q.Stdin)
	}
	return p, nil
}

// timeout returns a number of seconds from a request as a duration, or usual for 0. Errors: ErrInvalid for a
// number out of bounds.
func timeout(seconds int, usual time.Duration) (time.Duration, error) {
	d := time.Duration(seconds) * time.Second
	switch {
	case seconds == 0:
		return usual, nil
	case seconds < 0 || d > maxTimeout:
		return 0, errs.New("waiting", "", errs.ErrInvalid, "timeout_s must be from 1 to 1800")
	}
	return d, nil
}

// Await waits for the end of a command and returns its exit status. After the duration limit, unless that is
// 0, or when ctx ends, it ends the command's process group. Errors: ErrInterrupted if ctx has ended; ErrBusy
// for a command that cannot be ended.
func Await(ctx context.Context, p supervise.Client, limit time.Duration) (status int, timedOut bool, err error) {
	code := 0 // valid once ended has a value
	ended := make(chan error, 1)
	whole, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		st, err := p.Wait(whole)
		code = st.ExitCode()
		ended <- err
	}()
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case err := <-ended:
		return code, false, err
	case <-over:
		timedOut = true
	case <-ctx.Done():
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.SignalGroup(sig); err != nil {
			return 0, timedOut, err
		}
		select {
		case err = <-ended:
			if ctx.Err() != nil {
				err = errs.With("running a command", "", errors.Join(errs.ErrInterrupted, err))
			}
			return code, timedOut, err
		case <-time.After(supervise.GracePeriod):
		}
	}
	return 0, timedOut, errs.New("ending a command", "", errs.ErrBusy, "it has not ended after SIGKILL", "sandbox_remove")
}
