// Package race runs several attempts, each in a sandbox of its own and all forked
// at one instant, judges them by one check, and promotes the winner.
//
// Read [Request] first, then [Race] and [Attempt].
package race
