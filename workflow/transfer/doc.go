// Package transfer sends a state of a sandbox as a stream and receives one: whole,
// or as the difference to a state that both machines have. A broken transfer is
// resumed.
//
// Read [Client.Send] and [Client.Receive] first. Package stream defines
// the format.
package transfer
