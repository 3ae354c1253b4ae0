// Snapfs clones a person's real environment in milliseconds, runs any program in the clone,
// shows exactly what changed, and promotes the changes to the real tree or discards them.
//
// Each command is a file of its own: it parses its arguments, calls the engine and prints the
// result. The style of output is in ui.go, the exit statuses are in exit.go.
//
// Most commands end within milliseconds, so the runtime need not look for the processor limit of
// a control group, at the start and each second, nor name its memory for the kernel.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
//go:debug decoratemappings=0
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	growStack()
	os.Exit(execute(os.Args[1:]))
}

// execute runs snapfs with these arguments and returns the exit status of the program.
func execute(args []string) int {
	ctx, signals, restore, catching := catchSignals() // until the program ends
	a := &app{ui: newUI(os.Stdin, os.Stdout, os.Stderr), signals: signals}
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		args = []string{"version"} // what other programs have taught people
	}
	a.first = firstArgument(args)
	if slices.Contains(long, a.first) {
		endAtSecond(ctx, restore)
	}
	root := newRoot(a, args)
	root.SetArgs(args)
	<-catching
	cmd, err := root.ExecuteContextC(ctx)
	return a.finish(cmd, err)
}

// catchSignals returns a context that ends at the first SIGINT, SIGTERM or SIGHUP, and a channel with each of
// these signals, for a command to which snapfs passes them on (see [app.terminal]). The channel exists as long as
// the context: a signal that comes while the command is still being prepared would otherwise end nothing at all.
// restore lets the next signal end the program. Until catching is closed, the first signal ends the program, too.
func catchSignals() (ctx context.Context, signals chan os.Signal, restore func(), catching chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	caught := make(chan os.Signal, 16)
	signals, catching = make(chan os.Signal, 16), make(chan struct{})
	go func() {
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // slow: the runtime switches threads twice for each
		close(catching)
		for s := range caught {
			select {
			case signals <- s:
			default: // no command takes them
			}
			cancel()
		}
	}()
	return ctx, signals, func() { signal.Stop(caught) }, catching
}

// long lists the commands that may read or write many files for a long time and start no command to which
// signals are passed on. For these a first signal cancels the work.
var long = []string{
	"apply", "diff", "drift", "fork", "gc", "ls", "new", "plan", "promote", "receive", "redo", "refresh", "rm", "rollback",
	"send", "snapshot", "undo",
}

// sameSignal is how long two signals count as one. timeout(1) sends a signal to the program and another to
// its process group, and a closed terminal sends a second SIGHUP after the shell's.
const sameSignal = 500 * time.Millisecond

// endAtSecond lets a second signal end the program at once: shortly after the first one it calls restore,
// which restores the default action of signals. The first signal cancels ctx, so that the command ends at a
// point where its work is complete or undone. If the program is killed, the next command completes or reverts
// its work.
func endAtSecond(ctx context.Context, restore func()) {
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, restore) })
}

// commands lists every command of snapfs, in the order of the help text.
func commands() []command {
	return []command{
		{"run", working, newRun},
		{"race", working, newRace},
		{"new", working, newNew},
		{"exec", working, newExec},
		{"shell", working, newShell},
		{"logs", working, newLogs},
		{"fork", working, newFork},
		{"snapshot", working, newSnapshot},
		{"rollback", working, newRollback},
		{"send", working, newSend},
		{"receive", working, newReceive},
		{"keep", working, newKeep},
		{"open", working, newOpen},
		{"last", looking, newLast},
		{"cp", working, newCp},
		{"rename", working, newRename},
		{"stop", working, newStop},
		{"rm", working, newRm},
		{"diff", looking, newDiff},
		{"apply", looking, newApply},
		{"learn", working, newLearn},
		{"timeline", looking, newTimeline},
		{"bisect", looking, newBisect},
		{"drift", looking, newDrift},
		{"refresh", looking, newRefresh},
		{"plan", looking, newPlan},
		{"promote", looking, newPromote},
		{"fetch", looking, newFetch},
		{"undo", looking, newUndo},
		{"redo", looking, newRedo},
		{"stages", looking, newStages},
		{"log", looking, newLog},
		{"events", looking, newEvents},
		{"evidence", looking, newEvidence},
		{"report", looking, newReport},
		{"status", looking, newStatus},
		{"ls", looking, newLs},
		{"show", looking, newShow},
		{"stats", looking, newStats},
		{"net", looking, newNet},
		{"budget", looking, newBudget},
		{"port", working, newPort},
		{"limits", working, newLimits},
		{"job", working, newJob},
		{"mcp", working, newMCP},
		{"serve", working, newServe},
		{"token", working, newToken},
		{"agent", working, newAgent},
		{"hook", working, newHook},
		{"pool", caring, newPool},
		{"doctor", caring, newDoctor},
		{"ready", caring, newReady},
		{"gc", caring, newGc},
		{"timer", caring, newTimer},
		{"version", caring, newVersion},
		{"man", caring, newMan},
		{"exit-codes", caring, newExitCodes},
		{"held", caring, newHeld},
		{"hidden", caring, newHidden},
		{"profile", caring, newProfile},
		{"room", caring, newRoom},
		{"keeper", "", newSupervisor},
		{"standby", "", newStandby},
		{"sweeper", "", newSweeper},
		{"probe", "", newProbe},
		{"files", "", newFiles},
		{"watchdir", "", newWatchdir},
	}
}

// The headings under which the help text of snapfs lists its commands.
const (
	working = "sandboxes"
	looking = "results"
	caring  = "this machine"
)

// A command is the name of a command of snapfs and the function that constructs it. If the command line names
// a command, only that one is constructed, to save time.
type command struct {
	name, group string
	make        func(a *app) *cobra.Command
}

func newRoot(a *app, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "snapfs",
		Short: "run anything in an instant clone of this machine",
		Long: `snapfs clones this machine's environment in milliseconds, runs anything in the clone,
isolated, shows exactly what changed, and promotes or discards the result.`,
		Example: `  snapfs run -- make test            clone, run, see what changed
  snapfs run --keep --name fix -- ./try-it
  snapfs diff fix --patch
  snapfs apply fix`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().BoolVar(&a.ui.json, "json", false, "print results and errors as JSON")
	root.PersistentFlags().StringVar(&a.state, "state", "", "the state `directory` (default $SNAPFS_HOME, /var/lib/snapfs, or ~/.local/state/snapfs)")
	for _, g := range []string{working, looking, caring} {
		root.AddGroup(&cobra.Group{ID: g, Title: g + ":"})
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if a.state == "" && cmd.Flags().Changed("state") {
			return usageError(errors.New("--state is empty")) // a variable that was never set, not the default
		}
		return nil
	}
	root.SetCompletionCommandGroupID(caring)
	root.SetHelpCommandGroupID(caring)
	root.SuggestionsMinimumDistance = 2
	root.DisableSuggestions = true // they are hints, see finish
	list := needed(args)
	for _, c := range list {
		cmd := c.make(a)
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	if root.CompletionOptions.DisableDefaultCmd = len(list) == 1; len(list) > 1 { // the command line can name either
		root.SetHelpCommand(newHelp(root))
		tameCompletion(root)
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(flagError(err)) })
	return root
}

// needed returns the commands that this run must construct: the one that the first argument names, or all if that names
// none, as for help and completion.
func needed(args []string) []command {
	all, name := commands(), firstArgument(args)
	for _, c := range all {
		if c.name == name {
			return []command{c}
		}
	}
	return all
}

// firstArgument returns the first of args that is neither a flag of snapfs itself nor the value of one, or "". It names
// the command.
func firstArgument(args []string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--": // ends the flags
			return ""
		case args[i] == "--state":
			i++ // its value
		case !strings.HasPrefix(args[i], "-"):
			return args[i]
		}
	}
	return ""
}

// growStack gives the main goroutine a large stack while it is empty. Otherwise the runtime copies
// the stack several times on the way down, which takes a thirtieth of the time of a short command.
//
//go:noinline
func growStack() {
	var room [16 << 10]byte
	runtime.KeepAlive(&room)
}
