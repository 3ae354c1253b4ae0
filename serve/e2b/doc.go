// Package e2b serves the protocol of E2B, a hosted service of sandboxes for AI agents, so that the unmodified
// clients of E2B work with sandboxes of snapfs.
//
// Read [New] first: its handler serves everything at one address. The control routes (sandboxes.go, life.go)
// make, list, pause, fork and remove sandboxes. The routes of envd, E2B's program in each sandbox, run
// commands (process.go), change files (filesystem.go, transfer.go) and watch directories (watch.go). A Host
// of the form PORT-ID.DOMAIN leads to a port of the sandbox (proxy.go).
//
// A sandbox of E2B is a sandbox of snapfs whose name is its ID: the person sees it in snapfs ls, and may
// enter, compare and promote it. Data that only E2B has, such as metadata, lies in a file in the sandbox's
// directory in the catalogue ([meta]). The limits ttl and remove-after are the time-out of E2B. A restart of
// the server loses the commands that it runs, and nothing else.
//
// The server acts only on sandboxes that it made. A template is the real machine, a profile that the operator
// named, or a sandbox to fork.
package e2b
