package e2b

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/e2b/envd"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/watch"
	"github.com/snapfs/snapfs/serve/watchdir"
)

// Bounds of watches of a directory whose events a client fetches later: how many one sandbox has, before a
// further one is refused, and how many events of one watch wait, before the next fetch fails because events
// were lost.
const (
	maxWatchers = 64     // without a stream, in one sandbox
	maxStored   = 10_000 // events of such a watch that nobody has fetched
)

// A watcher watches a directory of a sandbox for a client of E2B. For a client that holds no stream open it
// stores the changes until the client fetches them.
type watcher struct {
	*watch.Watch

	mu     sync.Mutex
	stored []*envd.FilesystemEvent
	missed bool
	ended  error
}

// watch begins to watch the directory at in the sandbox b, with recursive also those in it. It returns when
// the watch has begun. The watch ends with the Server, with Stop, or with the sandbox's processes.
func (s *Server) watch(ctx context.Context, b *opened, at string, recursive bool) (*watcher, error) {
	w, err := watch.Start(ctx, s.ctx, s.o.Files, b.e, b.Name, watch.Options{
		ExecOptions: supervise.ExecOptions{Admission: s.admission()}, Dir: at, Recursive: recursive,
	})
	if err != nil {
		return nil, err
	}
	return &watcher{Watch: w}, nil
}

var eventTypes = map[string]envd.EventType{
	watchdir.Create: envd.EventType_EVENT_TYPE_CREATE,
	watchdir.Write:  envd.EventType_EVENT_TYPE_WRITE,
	watchdir.Remove: envd.EventType_EVENT_TYPE_REMOVE,
	watchdir.Rename: envd.EventType_EVENT_TYPE_RENAME,
	watchdir.Chmod:  envd.EventType_EVENT_TYPE_CHMOD,
}

// event converts a change e in the directory dir into the form of E2B. With describe it adds a description of
// the file, if that still exists.
func (s *Server) event(ctx context.Context, b *opened, dir string, e watchdir.Event, describe bool) *envd.FilesystemEvent {
	out := &envd.FilesystemEvent{Name: text(string(e.Name)), Type: eventTypes[e.Kind]}
	if describe && e.Kind != watchdir.Remove && e.Kind != watchdir.Rename {
		_ = s.resourcesOf(b).withFiles(ctx, b, func(t tree) error { // without it, the event says enough
			entry, err := describeFile(t, path.Join(dir, string(e.Name)))
			out.Entry = entry
			return err
		})
	}
	return out
}

// watchable returns dir, a client's path of a directory to watch, as an absolute path. Errors: ErrNotFound;
// ErrInvalid if it is no directory.
func (f *filesystem) watchable(ctx context.Context, dir string) (string, error) {
	var at string
	err := f.files(ctx, func(b *opened, t tree) error {
		at = b.path(dir)
		i, err := t.Stat(at, true)
		if err == nil && i.Type != files.Directory {
			err = errs.New("watching", at, errs.ErrInvalid, "it is no directory but a "+i.Type)
		}
		return err
	})
	return at, err
}

// WatchDir handles a request to watch a directory of a sandbox: it sends the changes there to the client
// until the client leaves.
func (f *filesystem) WatchDir(ctx context.Context, q *envd.WatchDirRequest, to *connect.ServerStream[envd.WatchDirResponse]) error {
	b := sandboxOf(ctx)
	at, err := f.watchable(ctx, q.Path)
	if err != nil {
		return err
	}
	w, err := f.s.watch(ctx, b, at, q.Recursive)
	if err != nil {
		return rpcError(err)
	}
	defer w.Stop()
	if err := to.Send(&envd.WatchDirResponse{Event: &envd.WatchDirResponse_Start{Start: &envd.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	alive := time.NewTicker(callOf(ctx).keepalive())
	defer alive.Stop()
	for {
		reply := &envd.WatchDirResponse{Event: &envd.WatchDirResponse_Keepalive{Keepalive: &envd.WatchDirResponse_KeepAlive{}}}
		select {
		case e, open := <-w.Events:
			if !open {
				return connect.NewError(connect.CodeUnavailable, errors.New("the watch has ended: "+w.Failed()))
			}
			reply.Event = &envd.WatchDirResponse_Filesystem{Filesystem: f.s.event(ctx, b, at, e, q.IncludeEntry)}
		case <-alive.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := to.Send(reply); err != nil {
			return err
		}
	}
}

// CreateWatcher handles a request to watch a directory of a sandbox. The client fetches the changes later
// with GetWatcherEvents.
func (f *filesystem) CreateWatcher(ctx context.Context, q *envd.CreateWatcherRequest) (*envd.CreateWatcherResponse, error) {
	b := sandboxOf(ctx)
	at, err := f.watchable(ctx, q.Path)
	if err != nil {
		return nil, err
	}
	r := f.s.resourcesOf(b)
	r.mu.Lock()
	full := len(r.watchers) >= maxWatchers
	r.mu.Unlock()
	if full {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("the sandbox has too many watches"))
	}
	w, err := f.s.watch(ctx, b, at, q.Recursive)
	if err != nil {
		return nil, rpcError(err)
	}
	id := newToken()
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.watchers[id] = w
	}
	r.mu.Unlock()
	if closed {
		w.Stop()
		return nil, rpcError(notFound(b.Name))
	}
	go func() {
		for e := range w.Events {
			event := f.s.event(f.s.ctx, b, at, e, q.IncludeEntry)
			w.mu.Lock()
			if len(w.stored) < maxStored {
				w.stored = append(w.stored, event)
			} else {
				w.missed = true
			}
			w.mu.Unlock()
		}
		w.mu.Lock()
		w.ended = errors.New("the watch has ended: " + w.Failed())
		w.mu.Unlock()
	}()
	return &envd.CreateWatcherResponse{WatcherId: id}, nil
}

var errNoWatcher = connect.NewError(connect.CodeNotFound, errors.New("no watch has this ID"))

// GetWatcherEvents handles a request for the changes that a watch of CreateWatcher has seen in its directory
// since the last such request.
func (f *filesystem) GetWatcherEvents(ctx context.Context, q *envd.GetWatcherEventsRequest) (*envd.GetWatcherEventsResponse, error) {
	r := f.s.resourcesOf(sandboxOf(ctx))
	r.mu.Lock()
	w := r.watchers[q.WatcherId]
	r.mu.Unlock()
	if w == nil {
		return nil, errNoWatcher
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &envd.GetWatcherEventsResponse{Events: slices.Clone(w.stored)}
	missed := w.missed
	w.stored, w.missed = nil, false
	switch {
	case missed:
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("events were lost: there were too many since the last call"))
	case len(out.Events) == 0 && w.ended != nil:
		return nil, connect.NewError(connect.CodeUnavailable, w.ended)
	}
	return out, nil
}

// RemoveWatcher handles a request to end the watch of a directory that CreateWatcher began.
func (f *filesystem) RemoveWatcher(ctx context.Context, q *envd.RemoveWatcherRequest) (*envd.RemoveWatcherResponse, error) {
	r := f.s.resourcesOf(sandboxOf(ctx))
	r.mu.Lock()
	w := r.watchers[q.WatcherId]
	delete(r.watchers, q.WatcherId)
	r.mu.Unlock()
	if w == nil {
		return nil, errNoWatcher
	}
	w.Stop()
	return &envd.RemoveWatcherResponse{}, nil
}
