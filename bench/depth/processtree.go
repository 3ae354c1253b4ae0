//go:build linux

package depth

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/internal/run"
)

// Role is the name of the part of a process that calls [Measure].
const Role = "depth"

// An order is a program to run and measure: its path, arguments, environment and working directory.
type order struct {
	Path      string
	Args, Env []string
	Dir       string
}

// A cost is what a command took. Wall is the time until it ended, and CPU its processor time until then, in the
// kernel too. Tree also has the processor time of the processes that it left behind.
type cost struct{ CPU, Tree, Wall time.Duration }

// Measure is the main function of a helper process that runs one command, described by ask as JSON text. It writes
// what the command took to out, as JSON text too. It waits for each process that the command leaves behind, for
// ever if one does not end. The process must have no other children, because Measure waits for them, too.
func Measure(ctx context.Context, ask string, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(ask), &o); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	t, err := run.Prepare(run.Program{Name: o.Path, Args: o.Args, Env: o.Env, Dir: o.Dir})
	if err != nil {
		return err
	}
	defer t.Close()
	var c cost
	if c.Wall, err = t.Run(ctx); err != nil {
		return err
	}
	c.CPU = timing.Processor(unix.RUSAGE_CHILDREN)
	for err == nil || err == unix.EINTR {
		_, err = unix.Wait4(-1, nil, 0, nil)
	}
	if err != unix.ECHILD {
		return err
	}
	c.Tree = timing.Processor(unix.RUSAGE_CHILDREN) // with that of the processes that the program has left
	return json.NewEncoder(out).Encode(c)
}
