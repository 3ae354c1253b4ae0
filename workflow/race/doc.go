// Package race runs several attempts at one task, each in its own sandbox and all forked at one instant,
// judges them by one check, and promotes the winner.
//
// Read [Request] first, then [Race] and [Attempt].
package race
