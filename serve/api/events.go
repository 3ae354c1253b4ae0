package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

type eventsInput struct {
	After   int64  `query:"after" minimum:"-1" default:"-1" doc:"start after the event with this number; 0 with the oldest; by default with the next one, or with the oldest without follow"`
	Last    string `header:"Last-Event-ID" doc:"as after, which it replaces"`
	Sandbox string `query:"sandbox" doc:"only events of this sandbox"`
	Type    string `query:"type" doc:"only events of this type"`
	Follow  bool   `query:"follow" default:"true" doc:"go on with events as they come, until the caller goes"`
	Accept  string `header:"Accept"`
}

func (a *API) addEvents() {
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: "/v1/events", id: "events", summary: "Stream what happens", stream: true,
		detail: "CloudEvents 1.0 objects, as lines of JSON or, where Accept prefers that, as server-sent events. Numbers have no gaps; an event of " +
			"type snapfs.events.lost stands for removed ones. An empty line, or a comment, comes every 15 seconds.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the events", Content: map[string]*huma.MediaType{
				ndjsonType: {Schema: &huma.Schema{Type: "string", Description: "a CloudEvents object in each line; docs/events.md lists types and data"}},
				sseType:    {Schema: &huma.Schema{Type: "string"}},
			}}}
		},
	}, a.events)
}

func (a *API) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	if _, err := a.o.Open(ctx); err != nil { // makes the state directory, and mends it
		return nil, err
	}
	after := in.After
	if in.Last != "" {
		n, err := strconv.ParseInt(in.Last, 10, 64)
		if err != nil || n < 0 {
			return nil, errs.New("reading events", "", errs.ErrInvalid, "Last-Event-ID is no number of an event")
		}
		after = n
	}
	if after < 0 && in.Follow {
		newest, err := events.Newest(a.o.State)
		if err != nil {
			return nil, err
		}
		after = int64(newest)
	}
	kind := accepts(in.Accept, ndjsonType, sseType)
	return stream(kind, func(w *writer) {
		out, sent := eventWriter{w, kind == sseType}, time.Now()
		send := func(b events.Batch) error {
			data := b.Only(in.Sandbox, in.Type).Encode(out.sse)
			if len(data) == 0 && time.Since(sent) < beatTime {
				return nil
			}
			sent = time.Now()
			return out.push(data)
		}
		if !in.Follow {
			_ = a.feed.Read(uint64(max(after, 0)), send) // an error ends the stream
			return
		}
		_ = out.w.flush()                                             // the headers, before the first event
		_ = a.feed.Follow(ctx, uint64(max(after, 0)), beatTime, send) // an error ends the stream
	}), nil
}

var errGone = errors.New("the caller has gone")

// beats sends an empty message on a stream to a client at regular intervals until ctx ends, to notice a
// client that is gone. If a message cannot be sent, it calls gone.
func beats(ctx context.Context, out eventWriter, gone context.CancelCauseFunc) {
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if out.push(nil) != nil {
				gone(errGone)
				return
			}
		}
	}
}
