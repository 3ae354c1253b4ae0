// Package client calls the HTTP API of `snapfs serve`. Its code is generated from docs/api/openapi.json, the
// document that the server makes of its routes.
//
// [AtSocket] returns a client of a server on this host, and [NewClientWithResponses] with [Token] one of a server
// at an address. Each method has the name of an operation in the document: NewSandboxWithResponse makes a sandbox,
// and the field JSON201 of its result describes it. [Err] returns what the server refused, as a [Problem]. The
// methods without the suffix return the raw response, which [Stream] reads where it is a stream of events.
//
// An optional text or flag is sent when it is not empty. An optional number and an optional parameter is a pointer:
// new(20), or nil for none.
package client

//go:generate go tool -modfile=../../internal/tools/go.mod oapi-codegen -config oapi-codegen.yaml ../../docs/api/openapi.json
