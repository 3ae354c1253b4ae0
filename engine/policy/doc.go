// Package policy reads profiles: the file snapfs.toml, in which a person sets the limits and
// permissions of sandboxes and the stages of promotions. [Read] returns a [Profile] that follows
// [Grammar], or an [Error] that lists every mistake with its position and correction. It runs
// nothing and reads no other file.
//
// # Where to start
//
// [Profile] and [Stage] are the result, [Grammar] is the description that both the reader and the
// documents use.
//
// The package must not know sandboxes, and must not run commands or check that paths exist.
package policy
