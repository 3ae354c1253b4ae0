package cmdbroker

import (
	"context"

	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/isolate"
)

// Options are what a [Broker] needs of its sandbox.
type Options struct {
	Container *isolate.Container
	Rules     []guarded.Rule
	// Execute executes a command with [isolate.Command.Guarded] in the container, and completes its environment.
	Execute func(ctx context.Context, c isolate.Command) (*isolate.Process, error)
	// Last returns the command that was last started in the sandbox from outside, for its environment and its user.
	Last func() isolate.Command
	// Pass are the names of variables of that command which the profile passes, besides the usual ones.
	Pass []string
	// Source is the file with the rules, for messages.
	Source string
	// Refused is called for each call that was refused.
	Refused func(Refusal)
}

// A Refusal is a call of a guarded program that was refused.
type Refusal struct {
	// Program is the path of the program.
	Program string
	// Words are the program's name and as many of the arguments as the rules compare.
	Words []string
	// By is the name of the process that called it, which the process chooses.
	By string
	// Reason is the cause, for the user.
	Reason string
}
