// Package watch waits for a change anywhere in a directory tree, by fanotify where the filesystem and
// the caller's rights allow it and by inotify elsewhere.
package watch
