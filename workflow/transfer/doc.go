// Package transfer sends a named snapshot of a sandbox as a stream and receives one: whole, or
// as the difference to a snapshot that both machines have. A broken transfer can be resumed.
//
// Read [Client.Send] and [Client.Receive] first. Package stream defines the format.
package transfer
