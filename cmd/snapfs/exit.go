package main

import (
	"errors"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// The exit statuses of snapfs itself. `run`, `exec` and `shell` pass the status
// of their command through, 128 and the signal's number for one that was
// killed, so their own failures have the numbers that shells and container
// tools reserve.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitTaken       = 4
	exitConflict    = 5
	exitNoSpace     = 6
	exitCannot      = 7
	exitCorrupt     = 8
	exitCheck       = 9
	exitWaiting     = 10
	exitWall        = 122
	exitNoRoom      = 123
	exitLimit       = 124
	exitOurs        = 125
	exitCannotRun   = 126
	exitNoCommand   = 127
	exitInterrupted = 130
)

// An exitCode is a row of the table that help, man page and tests print.
type exitCode struct {
	Code    int
	Meaning string
}

func exitCodes() []exitCode {
	return []exitCode{
		{exitOK, "done"},
		{exitFailure, "something failed that no other status stands for"},
		{exitUsage, "the command line, or the profile, makes no sense"},
		{exitNotFound, "there is no such sandbox, state, tree or path"},
		{exitTaken, "the name is taken, or the sandbox is in use"},
		{exitConflict, "the real tree has moved on; nothing was touched"},
		{exitNoSpace, "a disk, a pool or a quota is full; nothing was lost"},
		{exitCannot, "this host or this user cannot; see snapfs doctor"},
		{exitCorrupt, "state on disk that is damaged, or that snapfs does not understand; it is left alone"},
		{exitCheck, "a check did not succeed, so the stage is not done; the stages before it are"},
		{exitWaiting, "a stage waits for approval; the stages before it are done"},
		{exitWall, "a wall of the sandbox did not hold when it was tried; nothing was started in it"},
		{exitNoRoom, "this host has no room for a sandbox now; see snapfs help room"},
		{exitLimit, "run, exec, shell: a limit ended the command; which one is said"},
		{exitOurs, "run, exec, shell: snapfs itself failed"},
		{exitCannotRun, "run, exec, shell: the command cannot be run"},
		{exitNoCommand, "run, exec, shell: there is no such command"},
		{exitInterrupted, "interrupted; nothing is left half-done"},
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// statusOf picks the exit status for an error; passes says that the command
// passes the status of another one through.
func statusOf(err error, passes bool) int {
	var u usageError
	var c *engine.CommandError
	kind := engine.Kind(err)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &c):
		return c.ExitCode()
	case errors.Is(err, engine.ErrLimit):
		return exitLimit
	case errors.Is(kind, errs.ErrInterrupted):
		return exitInterrupted
	case errors.Is(kind, engine.ErrWall):
		return exitWall
	case errors.Is(err, engine.ErrNoRoom):
		return exitNoRoom
	case passes:
		return exitOurs
	case errors.As(err, &u), errors.Is(err, catalog.ErrBadName), errors.Is(err, catalog.ErrBadLimit), errors.Is(err, policy.ErrBadProfile), errors.Is(err, engine.ErrNotDirectory):
		return exitUsage
	case errors.Is(err, engine.ErrCheck):
		return exitCheck
	case errors.Is(err, engine.ErrWaiting):
		return exitWaiting
	}
	for _, k := range []struct {
		kind error
		code int
	}{
		{errs.ErrNotFound, exitNotFound},
		{errs.ErrExists, exitTaken},
		{errs.ErrBusy, exitTaken},
		{errs.ErrDrifted, exitConflict},
		{errs.ErrConflict, exitConflict},
		{errs.ErrNoSpace, exitNoSpace},
		{errs.ErrCorrupt, exitCorrupt},
		{errs.ErrNotSupported, exitCannot},
		{errs.ErrDenied, exitCannot},
		{errs.ErrReadOnly, exitCannot},
	} {
		if errors.Is(kind, k.kind) {
			return k.code
		}
	}
	return exitFailure
}
