// Package relay connects a command in a sandbox with the streams of its caller, and ends with the
// command: no stream that is a terminal is handed to the sandbox, nor a pipe or socket that the
// sandbox would keep. docs/design/0014-terminal.md has the reasons.
package relay
