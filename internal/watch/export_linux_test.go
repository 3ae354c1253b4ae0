package watch

// Kind is how it watches: "fanotify" or "inotify".
func (w *Tree) Kind() string { return w.kind }

// Group is the descriptor of its queue of fanotify events.
func (w *Tree) Group() int { return w.group }
