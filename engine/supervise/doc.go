// Package supervise owns the processes of a sandbox. A supervisor is the process that holds a sandbox's namespaces:
// it starts commands, pauses, freezes and ends them, and serves other processes on a socket. Its limits are enforced by
// package resources, and package drift watches the real workspace meanwhile.
//
// Read [Manager] first, which starts supervisors and sends them requests, then [Supervisor], the object inside that
// process, and the requests of the protocol. The package knows neither merges nor promotions.
package supervise
