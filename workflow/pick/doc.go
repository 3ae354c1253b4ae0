// Package pick promotes the parts of a sandbox's changes that a person picks, file by file and hunk by hunk,
// as git add -p does.
//
// Read Promote first. The picked state of each text is written to a fork of the sandbox, and the fork's files
// are promoted as usual, with the same checks and approvals. So the sandbox is never changed: a kill leaves
// it whole, and changes that were not picked stay in it. The package must not know terminals: its caller asks
// the person.
package pick
