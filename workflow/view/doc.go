// Package view shows the workspace of a sandbox at a directory of the host, for programs outside of the sandbox: a
// person's editor or file manager, or a coding agent's own file tools.
//
// A view lives as long as its owner process, or until it is closed, and ends with the sandbox; while it is open, a
// process of its own in the sandbox keeps the sandbox running. Read [View] and [Show] first. Package isolate/hostview
// mounts and serves the directory.
package view
