package e2b

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// envdVersion is the version of envd, E2B's program in a sandbox, whose protocol this server speaks. Clients
// use only the features of that version.
const envdVersion = "0.6.7"

// clientID is the value of the field in replies that names the machine of a sandbox in E2B. It is the same
// for all sandboxes here.
const clientID = "snapfs"

// controlRoutes returns the handler of the routes that make, list and remove sandboxes for clients of E2B.
// The caller has checked the API key.
func (s *Server) controlRoutes() http.Handler {
	m := http.NewServeMux()
	for pattern, handle := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"POST /sandboxes":                   s.create,
		"GET /sandboxes":                    s.list,
		"GET /sandboxes/metrics":            s.allMetrics,
		"GET /sandboxes/{id}":               s.detail,
		"DELETE /sandboxes/{id}":            s.remove,
		"POST /sandboxes/{id}/connect":      s.connect,
		"POST /sandboxes/{id}/resume":       s.connect,
		"POST /sandboxes/{id}/timeout":      s.setTimeout,
		"POST /sandboxes/{id}/refreshes":    s.refresh,
		"POST /sandboxes/{id}/pause":        s.pause,
		"POST /sandboxes/{id}/fork":         s.fork,
		"POST /sandboxes/{id}/snapshots":    s.snapshot,
		"PUT /sandboxes/{id}/network":       s.setNetwork,
		"GET /sandboxes/{id}/metrics":       s.metrics,
		"GET /sandboxes/{id}/logs":          s.logs,
		"GET /snapshots":                    s.snapshots,
		"GET /templates":                    s.templates,
		"GET /templates/aliases/{template}": s.template,
		"DELETE /templates/{template}":      s.removeSnapshot,
	} {
		f := func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				fail(w, err)
			}
		}
		m.HandleFunc(pattern, f)
		if method, path, _ := strings.Cut(pattern, " "); strings.HasPrefix(path, "/sandboxes") {
			m.HandleFunc(method+" /v2"+path, f)
		}
	}
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "this server has no route "+r.Method+" "+r.URL.Path)
	})
	return m
}

// reply describes the sandbox called id to the client that made it or connects to it: how to reach it, with
// its tokens.
func (s *Server) reply(r *http.Request, id string, m *meta) sandboxReply {
	domain := s.domain(r)
	out := sandboxReply{
		TemplateID: m.Template, SandboxID: id, ClientID: clientID, EnvdVersion: envdVersion,
		AccessToken: m.Token, Domain: &domain,
	}
	if m.Traffic != "" {
		out.TrafficToken = &m.Traffic
	}
	return out
}

// domain returns the domain whose subdomains PORT-ID lead to ports of sandboxes, with the port of this
// server. It is the host that the client used, or localhost for an address.
func (s *Server) domain(r *http.Request) string {
	host, port := hostOf(r.Host), ""
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		port = ":" + p
	}
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil {
		host = "localhost" // a browser resolves its subdomains
	}
	return host + port
}

// describe returns the entry of the sandbox in the list of sandboxes that a client gets.
func (b *opened) describe() listedSandbox {
	l := b.Policy.Limits
	d := listedSandbox{
		TemplateID: b.meta.Template, SandboxID: b.Name, ClientID: clientID, StartedAt: b.meta.Started, EndAt: b.endAt(),
		CPUCount: int(l.CPUs + 0.99), MemoryMB: l.Memory >> 20, DiskSizeMB: l.Disk >> 20, State: "running",
		EnvdVersion: envdVersion, Metadata: b.meta.Metadata,
	}
	if d.CPUCount == 0 {
		d.CPUCount = runtime.NumCPU()
	}
	if d.MemoryMB == 0 {
		d.MemoryMB = hostMemory() >> 20
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	if b.paused() {
		d.State = "paused"
	}
	return d
}

// detail handles a request to describe one sandbox: its template, times, state and resources.
func (s *Server) detail(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	domain := s.domain(r)
	d := sandboxDetail{listedSandbox: b.describe(), AccessToken: b.meta.Token, Domain: &domain, AllowInternet: b.meta.Internet, Network: b.meta.Network}
	d.Lifecycle.AutoResume, d.Lifecycle.OnTimeout = b.meta.AutoResume, "kill"
	if b.meta.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	if d.State == "paused" {
		d.PauseMode = "full"
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

// all returns the sandboxes and snapshots that this server has made in its state directory, oldest first.
func (s *Server) all(ctx context.Context) ([]*opened, error) {
	e, err := s.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	records, _ := e.Catalog().List() // one that cannot be read is none of a client's
	var list []*opened
	for _, rec := range records {
		m, err := readMeta(e, rec.Name)
		if b := (&opened{e, rec, m}); err == nil && b.exists() {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b *opened) int {
		return cmp.Or(a.meta.Started.Compare(b.meta.Started), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

// list handles a request to list sandboxes. It describes those that the request selects, a page at a time.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	keep, err := selection(q)
	if err != nil {
		return err
	}
	list, err := s.all(r.Context())
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(b *opened) bool { return b.meta.Snapshot || !keep(b) })
	if q.Get("order") != "asc" {
		slices.Reverse(list) // newest first, as E2B does
	}
	list, err = page(w, q, list)
	if err != nil {
		return err
	}
	out := make([]listedSandbox, len(list))
	for i, b := range list {
		out[i] = b.describe()
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// selection returns a function that reports whether the query q of a list selects a sandbox, by its metadata,
// state, template and start time.
func selection(q url.Values) (func(b *opened) bool, error) {
	metadata, err := url.ParseQuery(q.Get("metadata"))
	if err != nil {
		return nil, errs.New("listing", "", errs.ErrInvalid, "metadata is no query: "+err.Error())
	}
	var after time.Time
	if text := q.Get("startedAfter"); text != "" {
		if after, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, errs.New("listing", "", errs.ErrInvalid, "startedAfter is no time of RFC 3339")
		}
	}
	var states []string
	for _, text := range q["state"] {
		states = append(states, strings.Split(text, ",")...)
	}
	template := q.Get("template")
	return func(b *opened) bool {
		state := "running"
		if b.paused() {
			state = "paused"
		}
		for key, values := range metadata {
			if b.meta.Metadata[unquoted(key)] != unquoted(values[0]) { // clients quote twice
				return false
			}
		}
		return (states == nil || slices.Contains(states, state)) && b.meta.Started.After(after) && (template == "" || b.meta.Template == template)
	}, nil
}

func unquoted(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// page returns the part of list that the query q asks for, and sets a header with the token of the next page.
// The token is the name of the last sandbox, so that one that is made or removed meanwhile shifts no other.
func page(w http.ResponseWriter, q url.Values, list []*opened) ([]*opened, error) {
	const most = 100
	limit := most
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, errs.New("listing", "", errs.ErrInvalid, "limit must be a number above 0")
		}
		limit = min(n, most)
	}
	if token := q.Get("nextToken"); token != "" {
		when, name, ok := strings.Cut(token, "_")
		at, err := strconv.ParseInt(when, 36, 64)
		if !ok || err != nil {
			return nil, errs.New("listing", "", errs.ErrInvalid, "nextToken is none of this server")
		}
		descending := q.Get("order") != "asc"
		list = slices.DeleteFunc(list, func(b *opened) bool {
			c := cmp.Or(cmp.Compare(b.meta.Started.UnixNano(), at), strings.Compare(b.Name, name))
			return c == 0 || (c > 0) == descending
		})
	}
	if len(list) > limit {
		list = list[:limit]
		last := list[limit-1]
		w.Header().Set("X-Next-Token", strconv.FormatInt(last.meta.Started.UnixNano(), 36)+"_"+last.Name)
	}
	return list, nil
}

// remove handles a request to end and remove a sandbox.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.discard(r.Context(), b.e, b.Record); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// discard ends the commands of the sandbox of rec and removes it.
func (s *Server) discard(ctx context.Context, e *engine.Engine, rec *catalog.Record) error {
	err := e.Remove(context.WithoutCancel(ctx), rec.Name)
	if err == nil || errors.Is(err, errs.ErrNotFound) {
		s.forget(rec.ID)
	}
	if errors.Is(err, errs.ErrNotFound) {
		return notFound(rec.Name)
	}
	return err
}

// logs handles a request for the log of a sandbox with an empty answer, because the output of a command goes
// only to its client.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.sandbox(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": []any{}, "logEntries": []any{}})
	return nil
}
