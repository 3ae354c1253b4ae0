// Package agentrun runs a coding agent (Claude Code, Codex or opencode) as a whole inside a sandbox: the agent's
// own process, not only its shell.
//
// [Prepare] finds the agent's program. [Session.Confine] changes the policy of the sandbox to be made: the
// agent's key becomes a secret, for which the sandbox has only a placeholder, and the agent's own directories
// stay hidden. [Session.Furnish] copies the agent's settings, without credentials, into the sandbox.
// [Session.Command] is the command line to run then.
//
// The package must not know how a sandbox isolates or how a secret is put into requests: it is a client of the
// engine.
package agentrun
