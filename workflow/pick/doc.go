// Package pick promotes the parts of a sandbox's changes that a person picks, file by file and hunk by hunk, as git add
// -p does.
//
// Read Promote first. The picked state of each text is written to a fork of the sandbox, and the fork's files are
// promoted by the ordinary path, with its checks and approvals. So the sandbox is never changed: a kill leaves it
// whole, and what was not picked stays among its changes. The package must not know terminals: its caller asks.
package pick
