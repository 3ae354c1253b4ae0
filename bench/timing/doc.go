// Package timing runs several operations in turns, so that a noisy machine disturbs each of them alike, or
// many at once, and summarises how long each took.
package timing
