package engine

import "github.com/snapfs/snapfs/isolate"

// What callers of [Engine.Run] and [Engine.Exec] need of package isolate, so
// that they depend on the engine alone.
type (
	// Command is a program to run in a sandbox.
	Command = isolate.Command
	// CommandError says that a command could not be run at all.
	CommandError = isolate.CommandError
	// Status is how a command ended.
	Status = isolate.Status
	// Size is that of a terminal.
	Size = isolate.Size
	// Level is the isolation that is in force.
	Level = isolate.Level
)
