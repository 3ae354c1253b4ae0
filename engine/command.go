package engine

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/isolate"
)

// Aliases for types of other packages that callers of [Engine.Run] need, so that they import
// only the engine.
type (
	// Command is a program to run in a sandbox.
	Command = isolate.Command
	// CommandError reports a command that could not be started.
	CommandError = isolate.CommandError
	// Status is how a command ended: its exit status or signal.
	Status = isolate.Status
	// Size is the size of a terminal in rows and columns.
	Size = isolate.Size
	// Limits are the resource limits of a sandbox.
	Limits = catalog.Limits
	// Hit is a limit that ended or paused a command or sandbox.
	Hit = catalog.LimitHit
	// A Proof is the result of an isolation self-test.
	Proof = catalog.Proof
	// A ProfileUse lists which parts of a profile a sandbox's policy uses.
	ProfileUse = catalog.ProfileUse
	// Level is the isolation that is in force in a sandbox.
	Level = isolate.Level
)
