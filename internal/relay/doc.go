// Package relay copies data between a command in a sandbox and the standard streams of the program that runs
// it, and ends with the command. So the sandbox never gets a terminal of the caller, nor a pipe or socket
// that a process in the sandbox would keep open. Only output to a file goes on for processes that the command
// leaves behind, see [OpenFiles]. docs/design/0014-terminal.md has the reasons.
package relay
