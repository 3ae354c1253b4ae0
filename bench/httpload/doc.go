// Package httpload starts a server of the HTTP API of snapfs, sends it requests, and measures the time of the
// requests and the processor time that they cost.
//
// Read [Start] first, then [Client], whose methods are the requests.
package httpload
