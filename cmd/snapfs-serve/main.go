// Snapfs-serve speaks with agents and programs for snapfs. `snapfs mcp` and `snapfs serve` start it, and pass
// it a configuration made from their flags. It is a program of its own because the libraries of its protocols
// would slow down every start of snapfs.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/local"
	"github.com/snapfs/snapfs/serve/mcpserver"
	"github.com/snapfs/snapfs/workflow/evidence/cosign"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(os.Args) != 3 {
		refuse()
	}
	err := error(nil)
	switch text := []byte(os.Args[2]); os.Args[1] {
	case "mcp":
		err = serveMCP(ctx, parse[serve.Rules](text))
	case "api":
		err = serveAPI(ctx, parse[apiRequest](text))
	case "witness":
		err = askWitness(ctx, parse[cosign.Request](text))
	default:
		refuse()
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "snapfs:", err)
		for _, hint := range errs.HintsOf(err) {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
		os.Exit(errs.ExitStatus(err))
	}
}

// parse decodes the configuration that snapfs passed as JSON. It ends the program if the text is anything
// else.
func parse[T any](text []byte) (v T) {
	if exactjson.Decode(text, &v) != nil {
		refuse()
	}
	return v
}

func refuse() {
	fmt.Fprintln(os.Stderr, "snapfs-serve: only snapfs can start this program\nhint: snapfs serve")
	os.Exit(2)
}

// serveMCP serves an agent by the Model Context Protocol on the standard streams, until the input ends or a
// signal comes.
func serveMCP(ctx context.Context, rules serve.Rules) error {
	// Nothing but the protocol may go to the client, so anything else that is printed goes to standard error.
	out := os.Stdout
	os.Stdout = os.Stderr
	shared := local.NewServer(rules.State, rules.Program)
	defer shared.Close()
	open := func(ctx context.Context) (*engine.Engine, error) {
		return local.Open(ctx, local.Options{State: rules.State, Program: rules.Program, Notice: notice, Server: shared})
	}
	if _, err := open(ctx); err != nil {
		return err // at once, rather than at the first call
	}
	return mcpserver.Serve(ctx, serve.New(rules, open), mcpserver.Options{
		Version: version(), In: os.Stdin, Out: out,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// version returns the version of this program, the same text that the command `snapfs version` prints.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
