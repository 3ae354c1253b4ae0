package main

import (
	"fmt"

	"github.com/snapfs/snapfs/errs"
)

// The exit statuses of snapfs itself. A command such as `snapfs run`, with the annotation passesStatus, exits
// with the status of the command that it runs (128 and the signal's number for a killed one). If such a
// command of snapfs fails itself, its status is one of the numbers that shells and container tools reserve.
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

// An exitCode is a row of the table of snapfs's exit statuses, which help, manual page and tests use: a
// number and its meaning.
type exitCode struct {
	Code    int
	Meaning string
}

func exitCodes() []exitCode {
	return []exitCode{
		{exitOK, "done"},
		{exitFailure, "other failure"},
		{exitUsage, "the command line or the profile is invalid"},
		{exitNotFound, "no such sandbox, snapshot, tree or path"},
		{exitTaken, "the name is taken, or the sandbox is in use"},
		{exitConflict, "conflict with the real tree; nothing was changed"},
		{exitNoSpace, "a disk, a pool or a quota is full; nothing was lost"},
		{exitCannot, "not supported on this host or not permitted to this user; see snapfs doctor"},
		{exitCorrupt, "state on disk is damaged or of a newer snapfs; it was not changed"},
		{exitCheck, "a check failed and the stage with it; earlier stages are done"},
		{exitWaiting, "a stage waits for approval; earlier stages are done"},
		{exitWall, "a self-test broke out of the sandbox; the command was not started"},
		{exitNoRoom, "this host has no capacity for a sandbox now; see snapfs help room"},
		{exitLimit, "run, exec, shell, learn, agent run: a limit ended the command; snapfs names it"},
		{exitOurs, "run, exec, shell, learn, agent run: snapfs itself failed"},
		{exitCannotRun, "run, exec, shell, learn, agent run: the command cannot be executed"},
		{exitNoCommand, "run, exec, shell, learn, agent run: no such command"},
		{exitInterrupted, "interrupted; nothing is left half-done"},
	}
}

// errUsage is the kind of an error in the command line, such as an unknown flag.
var errUsage = fmt.Errorf("usage: %w", errs.ErrInvalid)

// usageError returns err marked as an error in the command line, whatever its kind was.
func usageError(err error) error { return &errs.Error{Kind: errUsage, Err: err} }

// statusOf returns the exit status for an error: one that the error has, or that of its kind. passes is set
// for a command such as `snapfs run`, which exits with the status of another command.
func statusOf(err error, passes bool) int {
	if err == nil {
		return exitOK
	}
	status := errs.ExitStatus(err)
	if _, own := errs.ExitCode(err); passes && !own && status != exitInterrupted {
		return exitOurs
	}
	return status
}
