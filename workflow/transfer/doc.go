// Package transfer sends a state of a sandbox as a stream and receives one: whole,
// or as the difference to a state that both machines have. A broken transfer is
// resumed.
//
// Read [Client.Send] and [Client.Receive] first. The format of the stream is
// package parcel's.
package transfer
