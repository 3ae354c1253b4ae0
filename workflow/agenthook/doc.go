// Package agenthook answers the hooks of coding agents, such as Claude Code and Codex: it gives an agent's session a
// sandbox, has the session's commands run there, and takes a checkpoint after each call of a tool.
//
// A session that works in a sandbox has a [Lease], a file beside the sandbox's record, and a view: a directory of the
// host that shows the sandbox's workspace to the agent's own file tools (package isolate/hostview). The view lives as
// long as the agent's process. [Reap] removes what sessions left behind; an event that ends a session does the same
// for its own.
//
// Read [Handler.Handle] first: one event in, one reply out. An event that the package does not know changes nothing,
// and its reply leaves the decision to the agent.
package agenthook
