package files

import (
	"context"
	"os"
	"slices"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
)

// Start starts the Helper's program in the sandbox called name, with the arguments args in place of those for
// a [Session], such as those that watch a directory. Errors: those of [supervise.Manager.ExecWith].
func (h *Helper) Start(ctx context.Context, e *engine.Engine, name string, args []string, stdout, stderr *os.File, o supervise.ExecOptions) (supervise.Client, error) {
	h.used.Store(true)
	program, err := h.copy()
	if err != nil {
		return nil, errs.With("starting a helper", "", err)
	}
	return e.Supervise.ExecWith(ctx, name, engine.Command{
		Args: slices.Concat([]string{"/proc/self/fd/0"}, args), Env: []string{"LC_ALL=C"}, Dir: "/", Stdin: program, Stdout: stdout, Stderr: stderr,
	}, o)
}
