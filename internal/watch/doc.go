// Package watch waits for a change anywhere in a directory tree. It uses fanotify where the filesystem and
// the caller's rights allow that, and inotify elsewhere.
package watch
