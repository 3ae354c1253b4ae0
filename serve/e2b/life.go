package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// setLimits changes the time limits of the sandbox in the catalogue; the function set computes them from the
// sandbox's present age.
func (b *opened) setLimits(ctx context.Context, set func(l *catalog.Limits, age time.Duration)) error {
	_, err := b.e.Supervise.SetLimits(ctx, b.Name, func(l *catalog.Limits) error {
		set(l, b.AgeAt(catalog.Now()))
		return nil
	})
	return err
}

// extend lets a sandbox live for the duration timeout from now on, and resumes the sandbox if it is paused.
func (s *Server) extend(ctx context.Context, b *opened, timeout time.Duration) error {
	b.meta.Timeout = timeout
	if err := b.meta.save(b.e, b.Name); err != nil {
		return err
	}
	return b.setLimits(ctx, func(l *catalog.Limits, age time.Duration) { *l = s.limits(*l, &b.meta, age) })
}

// connect handles a client's request to connect to a sandbox: it resumes a paused one, and lets a running one
// live at least as long as the request says.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	var q timeoutBody
	if err := readJSON(r, &q); err != nil {
		return err
	}
	timeout, err := s.timeout(q.Timeout, usualTimeout)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if b.paused() {
		status = http.StatusCreated
	}
	if status == http.StatusCreated || time.Until(b.endAt()) < timeout {
		if err := s.extend(r.Context(), b, timeout); err != nil {
			return err
		}
	}
	writeJSON(w, status, s.reply(r, b.Name, &b.meta))
	return nil
}

// setTimeout handles a client's request to let a sandbox live for a given time from now on.
func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var q timeoutBody
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if q.Timeout == nil {
		return errs.New("setting the time-out", "", errs.ErrInvalid, "the body has no timeout")
	}
	return s.prolong(w, r, q.Timeout)
}

// refresh handles a client's request to let a sandbox live longer, under the older name that some clients use
// for setTimeout.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Duration *int64 `json:"duration"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	return s.prolong(w, r, q.Duration)
}

func (s *Server) prolong(w http.ResponseWriter, r *http.Request, seconds *int64) error {
	timeout, err := s.timeout(seconds, usualTimeout)
	if err != nil {
		return err
	}
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if b.paused() {
		return errs.New("setting the time-out", b.Name, errs.ErrBusy, "the sandbox is paused: connect to it")
	}
	if err := s.extend(r.Context(), b, timeout); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pause handles a request to pause the processes of a sandbox. Its time-out does not run until a client
// connects.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	var q struct {
		Memory *bool `json:"memory"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if b.paused() {
		return errs.New("pausing", b.Name, errs.ErrBusy, "the sandbox is paused already")
	}
	s.forgetFiles(b.ID) // so that no frozen process answers a request
	if q.Memory != nil && !*q.Memory {
		if err := b.e.Supervise.Stop(r.Context(), b.Name); err != nil {
			return err
		}
	}
	err = b.setLimits(r.Context(), func(l *catalog.Limits, age time.Duration) { *l = s.pausedAt(*l, age) })
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// fork handles a request to make sandboxes with the present files of another one, without its processes.
func (s *Server) fork(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	var q forkBody
	if err := readJSON(r, &q); err != nil {
		return err
	}
	timeout, err := s.timeout(q.Timeout, usualTimeout)
	if err != nil {
		return err
	}
	count, most := 1, 100
	if q.Count != nil {
		count = *q.Count
	}
	if count < 1 || count > most {
		return errs.New("forking", b.Name, errs.ErrInvalid, fmt.Sprintf("count must be from 1 to %d", most))
	}
	if err := s.countable(r.Context(), b.e, count); err != nil {
		return err
	}
	type result struct {
		Sandbox *sandboxReply `json:"sandbox,omitempty"`
		Error   *apiError     `json:"error,omitempty"`
	}
	results := make([]result, count)
	for i := range results {
		m := b.meta
		m.Timeout, m.Started, m.Token = timeout, time.Now(), newToken()
		if m.Traffic != "" {
			m.Traffic = newToken()
		}
		rec, err := b.e.ForkAdmitted(r.Context(), b.Name, "", newID(), s.admission())
		if err = s.adopt(r.Context(), b.e, rec, &m, err); err != nil {
			results[i].Error = &apiError{statusOf(err), err.Error()}
			continue
		}
		reply := s.reply(r, rec.Name, &m)
		results[i].Sandbox = &reply
	}
	writeJSON(w, http.StatusCreated, results)
	return nil
}

// snapshot handles a request to store the files of a sandbox as a template. The snapshot is a sandbox of its
// own, so that it outlives the first.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	var q snapshotBody
	if err := readJSON(r, &q); err != nil {
		return err
	}
	name := newID()
	if q.Name != "" {
		name = strings.TrimSuffix(q.Name, ":default")
		if err := catalog.CheckName(name); err != nil || name == baseTemplate || s.o.Templates[name] != "" {
			return errors.Join(errs.New("making a snapshot", name, errs.ErrInvalid, "the name of a snapshot must be one of a sandbox, and of no template"), err)
		}
	}
	if err := s.countable(r.Context(), b.e, 1); err != nil {
		return err
	}
	m := meta{Template: b.meta.Template, Envs: b.meta.Envs, Started: time.Now(), Snapshot: true, Of: b.Name}
	rec, err := b.e.ForkAdmitted(r.Context(), b.Name, "", name, s.admission())
	if errors.Is(err, errs.ErrExists) && q.Name != "" {
		rec, err = s.replaceSnapshot(r.Context(), b, name)
	}
	if err := s.adopt(r.Context(), b.e, rec, &m, err); err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, describeSnapshot(rec.Name, q.Name != ""))
	return nil
}

// replaceSnapshot replaces the snapshot called name by one of the present files of the sandbox b. It refuses
// to replace a sandbox that is no snapshot of this server. After an error the old snapshot still exists,
// perhaps under another name, which the error has.
func (s *Server) replaceSnapshot(ctx context.Context, b *opened, name string) (*catalog.Record, error) {
	old, err := s.enter(ctx, name)
	if err != nil || !old.meta.Snapshot {
		return nil, errs.New("making a snapshot", name, errs.ErrExists, "a sandbox that is no snapshot has this name")
	}
	aside := newID()
	rec, err := b.e.ForkAdmitted(ctx, b.Name, "", aside, s.admission())
	if err != nil {
		return nil, err
	}
	if err := b.e.Remove(ctx, name); err != nil {
		return nil, errors.Join(err, b.e.Remove(context.WithoutCancel(ctx), aside))
	}
	if err := b.e.Rename(ctx, aside, name); err != nil {
		return nil, err
	}
	rec.Name = name
	return rec, nil
}

func describeSnapshot(name string, named bool) snapshotReply {
	d := snapshotReply{SnapshotID: name, Names: []string{}}
	if named {
		d.Names = append(d.Names, name)
	}
	return d
}

// snapshots handles a request to list the snapshots of this server, or those of one sandbox.
func (s *Server) snapshots(w http.ResponseWriter, r *http.Request) error {
	list, err := s.all(r.Context())
	if err != nil {
		return err
	}
	q := r.URL.Query()
	of, name := q.Get("sandboxID"), strings.TrimSuffix(q.Get("name"), ":default")
	list = slices.DeleteFunc(list, func(b *opened) bool {
		return !b.meta.Snapshot || of != "" && b.meta.Of != of || name != "" && b.Name != name
	})
	if q.Get("order") != "asc" {
		slices.Reverse(list)
	}
	if list, err = page(w, q, list); err != nil {
		return err
	}
	out := make([]snapshotReply, len(list))
	for i, b := range list {
		out[i] = describeSnapshot(b.Name, true)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// removeSnapshot handles a request to remove a snapshot of a sandbox's files, which clients name like a
// template. It refuses to remove any other template.
func (s *Server) removeSnapshot(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimSuffix(r.PathValue("template"), ":default")
	b, err := s.enter(r.Context(), name)
	if errors.Is(err, errs.ErrNotFound) || err == nil && !b.meta.Snapshot {
		return noTemplate(name)
	}
	if err == nil {
		err = s.discard(r.Context(), b.e, b.Record)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// template handles a client's request that asks whether a template, from which sandboxes are made, exists
// under a name.
func (s *Server) template(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("template")
	if name != baseTemplate && s.o.Templates[name] == "" {
		if b, err := s.enter(r.Context(), strings.TrimSuffix(name, ":default")); err != nil || !b.meta.Snapshot {
			return noTemplate(name)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"templateID": name, "public": false})
	return nil
}

// templates handles a request to list the templates by name. It leaves out the builds of E2B's own list,
// which do not exist here.
func (s *Server) templates(w http.ResponseWriter, r *http.Request) error {
	names := []string{baseTemplate}
	for name := range s.o.Templates {
		names = append(names, name)
	}
	slices.Sort(names[1:])
	list, err := s.all(r.Context())
	if err != nil {
		return err
	}
	for _, b := range list {
		if b.meta.Snapshot {
			names = append(names, b.Name)
		}
	}
	out := make([]map[string]any, len(names))
	for i, name := range names {
		out[i] = map[string]any{"templateID": name, "buildID": name, "aliases": []string{name}, "names": []string{name}, "public": false, "buildStatus": "ready", "envdVersion": envdVersion}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
