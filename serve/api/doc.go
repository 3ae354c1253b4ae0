// Package api serves the sandboxes of a state directory over HTTP, to the operator who started the server and
// to programs with a token.
//
// Read [New] first: it returns the handler, with a typed function for each route, of which package huma makes
// the OpenAPI 3.1 document. [Serve] listens. Each request opens the engine anew, as a command does. So the
// server has no state that a kill could lose, and any number of commands can work at the same time.
//
// Each route declares the scope that it needs. A client on the unix socket is this user or root and has every
// scope; one with a token has those of the token. Errors are problem documents (RFC 9457) with the fields of
// the commands' --json errors.
package api
