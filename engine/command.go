package engine

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/isolate"
)

// Aliases for types of other packages that callers of [Engine.Run] need, so that they import only this
// package.
type (
	// Command is a program to run in a sandbox.
	Command = isolate.Command
	// CommandError is the error of a command that could not be started in a sandbox.
	CommandError = isolate.CommandError
	// Status is how a command ended: its exit status or signal.
	Status = isolate.Status
	// Size is the size of a terminal in rows and columns.
	Size = isolate.Size
	// Limits are the resource limits of a sandbox.
	Limits = catalog.Limits
	// Hit is a resource limit that a command or sandbox reached, and that ended or paused it.
	Hit = catalog.LimitHit
	// A Proof is the result of a self-test, in which a program inside a sandbox tried to get out of it.
	Proof = catalog.Proof
	// A ProfileUse lists which settings of a profile a sandbox's policy uses, and which it ignores.
	ProfileUse = catalog.ProfileUse
	// Level says which parts of a sandbox's isolation, such as Landlock, are in force on this host, and which
	// are missing.
	Level = isolate.Level
)
