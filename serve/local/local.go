// Package local opens an engine on this machine as each program of snapfs needs it: with all backends, and
// with the hidden commands of snapfs as helpers: the supervisor of a sandbox, the sweeper of expired
// sandboxes and the self-test.
//
// A program that parses flags or speaks a protocol calls [Open] and decides nothing about how the engine is
// composed.
package local

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/supervise/connpool"
	"github.com/snapfs/snapfs/engine/supervise/standby"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/workflow/agenthook"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/selftest"
	"github.com/snapfs/snapfs/workflow/transfer"
)

// Options are the parts of an engine's configuration that differ between the programs which open it, such as
// the state directory.
type Options struct {
	// State is the state directory.
	State string
	// Program is the path of the snapfs program, whose hidden commands the engine starts.
	Program string
	// Server shares what one opening of the engine leaves for the next; nil where a program opens it once.
	Server *Server
	// Later leaves expired sandboxes to the sweeper, see [engine.Config].
	Later bool
	// Child is set in a process that another process of snapfs has started for the same state directory. That one has
	// listed it among this user's; the list must not come back once somebody has removed the home directory.
	Child bool
	// Notice is called with a sentence for everything that was repaired.
	Notice func(text string)
}

// Open opens the engine of the state directory with all backends of this machine. Cost and errors: those of
// [engine.Open].
func Open(ctx context.Context, o Options) (*engine.Engine, error) {
	var pool *standby.Pool
	var connections *connpool.Pool
	var background sandbox.Background
	if o.Server != nil {
		pool, connections, background = o.Server.pool, &o.Server.connections, o.Server
	}
	e, err := engine.Open(ctx, engine.Config{
		Standby: pool, Connections: connections,
		Background: background,
		Later:      o.Later,
		State:      o.State,
		Drivers:    all.Drivers,
		Server:     func() ([]string, error) { return run.Beside("snapfs-fuse", o.Notice) },
		Notice:     o.Notice,
		Supervisor: []string{o.Program, "keeper"},
		Sweeper:    []string{o.Program, "sweeper"},
		Probe:      []string{o.Program, "probe"}, SelfTest: selftest.For,
		Expire:   expire,
		Witness:  evidence.Witness,
		Manifest: evidence.RecordChanges,
		Proxy:    func() ([]string, error) { return o.beside("opening the network", "snapfs-edge") },
		IDMapper: o.idMapper,
	})
	if e != nil && !o.Child && (o.Server == nil || !o.Server.registered.Swap(true)) {
		o.register()
	}
	return e, err
}

// register lists the state directory among those of this user, so that sandboxes of the others do not see it.
func (o Options) register() {
	home, err := os.UserHomeDir()
	if err == nil {
		err = catalog.Register(home, o.State)
	}
	if err != nil && o.Notice != nil {
		o.Notice("sandboxes of other state directories can see this one: " + err.Error())
	}
}

// expire removes leftovers: parts of streams of snapfs receive that nobody resumes, and unchanged sandboxes
// of coding agents whose processes have ended. A changed one of these stays for the person.
func expire(e *engine.Engine) error {
	_, err := agenthook.Reap(context.Background(), e)
	return errors.Join(transfer.Expire(e), err)
}

func (o Options) idMapper() ([]string, error) {
	program, err := o.beside("mapping the sandbox's users", "snapfs-fuse")
	return append(program, "shift"), err
}

// beside returns the command line that starts the helper program called name, such as snapfs-edge, which is
// installed next to snapfs (see [run.Beside]). doing names the operation in an error.
func (o Options) beside(doing, name string) ([]string, error) {
	program, err := run.Beside(name, o.Notice)
	return program, errs.With(doing, "", err)
}

// CheckOutside returns ErrNotSupported if this process runs inside a sandbox, where no engine can work.
func CheckOutside() error {
	name := os.Getenv(hostfs.SandboxVariable)
	if name == "" || os.Getenv("SNAPFS_STAGE") != "" { // commands of a stage have both variables
		return nil
	}
	return &errs.Error{
		Op: "opening", Kind: errs.ErrNotSupported, Err: errors.New("this is inside the sandbox " + pathlist.Printable(name) + ", where snapfs cannot run"),
		Hints: []string{"exit", "unset " + hostfs.SandboxVariable + " (if this is inside no sandbox)"},
	}
}
