//go:build linux

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/run"
)

// The roles of helper processes, started with `snapfs-bench --role`: measure as another user,
// remove that user's sandboxes, fill that user's directory, or run jobs as a worker.
const (
	RoleMeasure = "measure"
	RoleClear   = "clear"
	RolePrepare = "prepare"
	RoleWork    = "work"
)

func pause() { time.Sleep(20 * time.Millisecond) }

// Private runs the program snapfs-bench again, with args and a new directory as --lab, in a private mount
// namespace. It always removes the directory, and returns the exit status.
func Private(ctx context.Context, program string, args []string) (status int, err error) {
	dir, err := labDir()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, removeLab(context.WithoutCancel(ctx), dir)) }()
	// It reads until this process closes the other end, or is gone.
	leash, end, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer leash.Close()
	stop := context.AfterFunc(ctx, func() { end.Close() })
	defer func() {
		if stop() {
			end.Close()
		}
	}()
	args = append([]string{"--mount", "--propagation", "private", program}, append(args, "--lab", dir)...)
	err = run.Run(context.WithoutCancel(ctx), run.Program{Name: "unshare", Args: args, Stdin: leash, Stdout: os.Stdout, Stderr: os.Stderr})
	var failed *run.Error
	if errors.As(err, &failed) && failed.Code > 0 {
		return failed.Code, nil
	}
	return 0, err
}

// Leashed returns a context that is cancelled when standard input ends. A helper process of the benchmark
// stops by it when its parent process, which has the other end, is gone.
func Leashed(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is all that counts
	}()
	return ctx
}

// An order is the request, as JSON, to a helper process that measures as another user.
type order struct {
	Setting setting
	Options Options
	Dir     string
}

// measureSetting measures the setting s: in this process, or in a helper process if the setting has another
// user.
func (l *lab) measureSetting(ctx context.Context, s setting) ([]Result, error) {
	if s.Error != "" {
		return []Result{{Kind: "latency", Setting: s.Name, Error: s.Error}}, nil
	}
	if s.User == os.Geteuid() {
		return l.measure(ctx, s)
	}
	o := l.Options
	o.Say = nil
	ask, err := json.Marshal(order{Setting: s, Options: o, Dir: l.dir})
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run.Run(ctx, run.Program{
			Name: l.Self, Args: []string{"--role", RoleMeasure, "--order", string(ask)},
			Env: s.env(), Dir: s.Dir, Stdout: w, As: &run.IDs{UID: s.User, GID: s.User},
		})
		w.Close() //nolint:errcheck // of a pipe in memory
		done <- err
	}()
	results, rerr := l.hear(r)
	io.Copy(io.Discard, r) //nolint:errcheck // so that the writer ends
	return results, errors.Join(rerr, <-done)
}

// A helperLine is one JSON line from a helper process that measures as another user: a result, or a text
// about its present step.
type helperLine struct {
	Result *Result `json:"result,omitempty"`
	Say    string  `json:"say,omitempty"`
}

func (l *lab) hear(r io.Reader) ([]Result, error) {
	var results []Result
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var t helperLine
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return results, err
		}
		if t.Say != "" {
			l.Say(t.Say)
		}
		if t.Result != nil {
			results = append(results, *t.Result)
		}
	}
	return results, lines.Err()
}

// Measure is the main function of a helper process that measures as another user. ask is the order as JSON;
// the results go to out as helper lines.
func Measure(ctx context.Context, ask string, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(ask), &o); err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	o.Options.Say = func(s string) { enc.Encode(helperLine{Say: s}) } //nolint:errcheck // the results follow
	l := &lab{Options: o.Options, dir: o.Dir}
	results, err := l.measure(ctx, o.Setting)
	for _, r := range results {
		if eerr := enc.Encode(helperLine{Result: &r}); eerr != nil {
			return errors.Join(err, eerr)
		}
	}
	return err
}
