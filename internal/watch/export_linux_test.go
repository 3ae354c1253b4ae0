package watch

// Kind is how it watches: "fanotify" or "inotify".
func (w *Tree) Kind() string { return w.kind }
