package engine

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/isolate"
)

// The types of other packages that callers of [Engine.Run] need, so that such
// callers import the engine alone.
type (
	// Command is a program to run in a sandbox.
	Command = isolate.Command
	// CommandError says that a command could not be run at all.
	CommandError = isolate.CommandError
	// Status is how a command ended.
	Status = isolate.Status
	// Size is that of a terminal.
	Size = isolate.Size
	// Limits are how much a sandbox may use.
	Limits = catalog.Limits
	// Hit is a limit that ended something.
	Hit = catalog.LimitHit
	// A Proof says which walls of a sandbox were tried, and what came of it.
	Proof = catalog.Proof
	// A ProfileUse says what a profile had to do with a sandbox.
	ProfileUse = catalog.ProfileUse
	// Level is the isolation that is in force.
	Level = isolate.Level
)
