package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/serve/watch"
	"github.com/snapfs/snapfs/serve/watchdir"
)

// A FileEvent is a change in a directory of a sandbox that a client watches, as the API streams it.
type FileEvent struct {
	Type   string           `json:"type" enum:"ready,create,write,remove,rename,chmod,error" doc:"ready: the first event; rename: away from this name, the new one gets a create"`
	Path   string           `json:"path,omitempty" doc:"relative to the directory"`
	Base64 []byte           `json:"path_base64,omitempty" doc:"in place of path, where the name is not UTF-8"`
	Error  *problem.Problem `json:"error,omitempty" doc:"of error, the last event: why the watch has ended, such as missed events"`
}

type watchInput struct {
	FilePath
	Recursive bool   `query:"recursive" doc:"also the directories in it"`
	Accept    string `header:"Accept"`
}

func (a *API) addWatch() {
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: "/v1/sandboxes/{name}/files/watch", id: "watch-files", summary: "Stream the changes in a directory of a sandbox", stream: true,
		detail: "Until the caller goes, or the processes of the sandbox are ended. A process inside the sandbox watches, which a slow caller holds up and no other. " +
			"Lines of JSON or, where Accept prefers that, server-sent events.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the changes", Content: map[string]*huma.MediaType{
				ndjsonType: {Schema: &huma.Schema{Type: "string", Description: "a FileEvent in each line"}},
				sseType:    {Schema: &huma.Schema{Type: "string"}},
			}}}
			a.schemaOf(FileEvent{})
		},
	}, a.watch)
}

func (a *API) watch(ctx context.Context, in *watchInput) (*huma.StreamResponse, error) {
	s, rec, err := a.openFiles(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	dir := at(rec, in.Path)
	info, err := s.Stat(dir, true)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	if err == nil && info.Type != files.Directory {
		err = errs.New("watching", dir, errs.ErrInvalid, "it is no directory")
	}
	if err != nil {
		return nil, err
	}
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	w, err := watch.Start(ctx, ctx, a.o.Files, e, in.Name, watch.Options{
		ExecOptions: supervise.ExecOptions{EndAtTTL: true}, Dir: dir, Recursive: in.Recursive,
	})
	if err != nil {
		return nil, err
	}
	kind := accepts(in.Accept, ndjsonType, sseType)
	return stream(kind, func(to *writer) {
		defer w.Stop()
		streamWatch(ctx, w, eventWriter{to, kind == sseType})
	}), nil
}

// streamWatch sends the changes that w reports in a directory of a sandbox to the client until the watch ends
// or the client is gone.
func streamWatch(ctx context.Context, w *watch.Watch, out eventWriter) {
	beat := time.NewTicker(beatTime)
	defer beat.Stop()
	err := out.send("", watchdir.Ready, FileEvent{Type: watchdir.Ready})
	for err == nil {
		select {
		case e, open := <-w.Events:
			if !open {
				p := problem.Of(errs.New("watching", "", errs.ErrInterrupted, w.Failed()))
				_ = out.send("", "error", FileEvent{Type: "error", Error: p}) // an error means that the caller has gone
				return
			}
			ev := FileEvent{Type: e.Kind}
			ev.Path, ev.Base64 = textOf(e.Name)
			err = out.send("", ev.Type, ev)
		case <-beat.C:
			err = out.push(nil)
		case <-ctx.Done():
			return
		}
	}
}
