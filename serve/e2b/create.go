package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/errs"
)

// baseTemplate is the name of the template that stands for the real machine: a sandbox that a client makes
// from it is a clone of the machine.
const baseTemplate = "base"

// usualTimeout is how long a sandbox lives if the client that makes it sets no time-out: five minutes.
const usualTimeout = 300 * time.Second

// mostSandboxes is the largest number of sandboxes and snapshots that this server has in one state directory.
// A request for one more is refused with ErrNoSpace.
const mostSandboxes = 1000

// A creation is the result of a request for a sandbox with an idempotency key. If the client repeats the
// request with that key, it gets the same sandbox.
type creation struct {
	done  chan struct{}
	at    time.Time
	reply sandboxReply
	err   error
}

// create handles a request to make a sandbox from a template.
func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	var q newSandbox
	if err := readJSON(r, &q); err != nil {
		return err
	}
	var reply sandboxReply
	var err error
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		reply, err = s.once(r.Context(), key, func() (sandboxReply, error) { return s.make(r, &q) })
	} else {
		reply, err = s.make(r, &q)
	}
	if err == nil {
		writeJSON(w, http.StatusCreated, reply)
	}
	return err
}

// onceFor is how long the server remembers the result of a request for a sandbox with an idempotency key, so
// that a repeated request gets the same sandbox. Clients repeat a request within seconds.
const onceFor = 10 * time.Minute

// once calls do, which makes a sandbox, if the idempotency key of the request is new. For a known key it
// returns the result of the first call.
func (s *Server) once(ctx context.Context, key string, do func() (sandboxReply, error)) (sandboxReply, error) {
	s.mu.Lock()
	for k, c := range s.created {
		if time.Since(c.at) > onceFor {
			delete(s.created, k)
		}
	}
	c, known := s.created[key]
	if !known {
		c = &creation{done: make(chan struct{}), at: time.Now()}
		s.created[key] = c
	}
	s.mu.Unlock()
	if known {
		select {
		case <-c.done:
			return c.reply, c.err
		case <-ctx.Done():
			return sandboxReply{}, errs.With("making a sandbox", "", errors.Join(errs.ErrInterrupted, ctx.Err()))
		}
	}
	c.reply, c.err = do()
	if c.err != nil {
		s.mu.Lock()
		delete(s.created, key) // it may be tried again
		s.mu.Unlock()
	}
	close(c.done)
	return c.reply, c.err
}

// check returns ErrInvalid if the request for a sandbox asks for a feature of E2B that this server lacks. The
// server ignores no demand.
func (q *newSandbox) check() error {
	const op = "making a sandbox"
	for what, given := range map[string]bool{
		"volumeMounts": len(q.VolumeMounts) > 0, "mcp": present(q.MCP), "iam": present(q.IAM),
	} {
		if given {
			return errs.New(op, "", errs.ErrInvalid, "this server does not support "+what)
		}
	}
	for name, value := range q.EnvVars {
		if err := checkVariable(name, value); err != nil {
			return err
		}
	}
	return q.Network.check()
}

func present(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

func checkVariable(name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
		return errs.New("setting a variable", "", errs.ErrInvalid, fmt.Sprintf("%q is no name of a variable, or its value contains a zero byte", name))
	}
	return nil
}

// timeout returns the time-out of a sandbox that a request sets in seconds, or usual for nil. Errors:
// ErrInvalid for one beyond the operator's bound.
func (s *Server) timeout(seconds *int64, usual time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return min(usual, s.o.MaxTimeout), nil
	case *seconds < 0 || *seconds > int64(s.o.MaxTimeout/time.Second):
		return 0, errs.New("setting the time-out", "", errs.ErrInvalid, "the time-out must be from 0 to "+s.o.MaxTimeout.String())
	}
	return max(time.Duration(*seconds)*time.Second, time.Millisecond), nil
}

// make makes the sandbox that the request q of an E2B client asks for, and describes it.
func (s *Server) make(r *http.Request, q *newSandbox) (sandboxReply, error) {
	ctx := r.Context()
	if err := q.check(); err != nil {
		return sandboxReply{}, err
	}
	timeout, err := s.timeout(q.Timeout, usualTimeout)
	if err != nil {
		return sandboxReply{}, err
	}
	m := meta{
		Template: q.TemplateID, Metadata: q.Metadata, Envs: q.EnvVars, AutoPause: q.AutoPause, AutoResume: q.AutoResume.Enabled,
		Timeout: timeout, Started: time.Now(), Internet: q.AllowInternet, Network: q.Network, Token: newToken(),
	}
	if m.Template == "" {
		m.Template = baseTemplate
	}
	if n := q.Network; n != nil && n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic {
		m.Traffic = newToken()
	}
	e, err := s.o.Open(ctx)
	if err != nil {
		return sandboxReply{}, err
	}
	if err := s.countable(ctx, e, 1); err != nil {
		return sandboxReply{}, err
	}
	rec, err := s.fromTemplate(ctx, e, &m)
	if err != nil {
		return sandboxReply{}, err
	}
	return s.reply(r, rec.Name, &m), nil
}

// countable returns ErrNoSpace if making this many more sandboxes would exceed mostSandboxes, the number that
// this server may have.
func (s *Server) countable(ctx context.Context, e *engine.Engine, more int) error {
	if names, err := e.Names(); err == nil && len(names)+more <= mostSandboxes {
		return nil // those of persons included
	}
	list, err := s.all(ctx)
	if err == nil && len(list)+more > mostSandboxes {
		err = errs.New("making a sandbox", "", errs.ErrNoSpace, fmt.Sprintf("this server has %d sandboxes already", len(list)))
	}
	return err
}

// newID returns a random ID for a new sandbox. It is also the sandbox's name in snapfs, and a label of the
// host name by which clients reach it.
func newID() string { return "e" + catalog.NewID() }

// admission says whether a new sandbox waits for free capacity of the host, or is refused without it, as the
// operator's flags have it.
func (s *Server) admission() admission.Options {
	return admission.Options{Queue: s.o.Rules.Queue, IfRoom: s.o.Rules.IfRoom}
}

// fromTemplate makes a sandbox from the template that m names, and stores m, the data that E2B has about the
// sandbox, for it. After an error there is no new sandbox. Errors: ErrNotFound (the template), those of
// [engine.Engine.New] and [engine.Engine.Fork].
func (s *Server) fromTemplate(ctx context.Context, e *engine.Engine, m *meta) (*catalog.Record, error) {
	file, named := s.o.Templates[m.Template]
	if m.Template == baseTemplate || named {
		req := s.request(newID(), m)
		if named {
			// As if the operator had named the profile on the command line: the flags of the server stay in force.
			if err := profile.Apply(ctx, &req, file, s.given); err != nil {
				return nil, err
			}
		}
		rec, err := e.New(ctx, req)
		if err == nil {
			err = s.note(ctx, e, rec, m)
		}
		return rec, err
	}
	from, state, _ := strings.Cut(strings.TrimSuffix(m.Template, ":default"), "@")
	if catalog.CheckName(from) != nil {
		return nil, noTemplate(m.Template)
	}
	origin, err := e.Catalog().Get(from)
	if errors.Is(err, errs.ErrNotFound) || err == nil && origin.Workspace != s.o.Rules.Workspace {
		return nil, noTemplate(m.Template)
	}
	if err != nil {
		return nil, err
	}
	if err := s.covers(origin); err != nil {
		return nil, err
	}
	rec, err := e.ForkAdmitted(ctx, from, state, newID(), s.admission())
	return rec, s.adopt(ctx, e, rec, m, err)
}

func noTemplate(name string) error {
	return errs.New("making a sandbox", "", errs.ErrNotFound, fmt.Sprintf("no template is named %q", name))
}

// given reports whether the operator, who started the server, has set the part of the sandboxes' policy
// called flag, such as "memory", by the flag of that name. The profile of a template then does not change
// that part.
func (s *Server) given(flag string) bool {
	if flag == "net" {
		return true // a profile may grant no network that the server does not have
	}
	for _, f := range s.o.Rules.Policy.Limits.Fields() {
		if f.Name == flag {
			return f.Value.String() != ""
		}
	}
	return false
}

// request returns the request to the engine for a sandbox called id that is a clone of the real machine. m,
// the data that E2B has about the sandbox, narrows its network and sets its time-out.
func (s *Server) request(id string, m *meta) hostfs.Request {
	p := s.o.Rules.Policy
	p.Network = narrowed(p.Network, m.Internet, m.Network)
	p.Limits = s.limits(p.Limits, m, 0)
	return hostfs.Request{
		Name: id, Workspace: s.o.Rules.Workspace, Backend: s.o.Rules.Backend, Frozen: s.o.Rules.Frozen, Policy: p,
		Admission: s.admission(),
	}
}

// note stores m, the data that E2B has about a sandbox, for the new sandbox of rec. If that fails, note
// removes the sandbox, in which nothing has run.
func (s *Server) note(ctx context.Context, e *engine.Engine, rec *catalog.Record, m *meta) error {
	err := m.save(e, rec.Name)
	if err != nil {
		err = errors.Join(err, e.Remove(context.WithoutCancel(ctx), rec.Name))
	}
	return err
}

// adopt stores m, the data that E2B has about a sandbox, for the sandbox of rec, a new fork, and sets its
// time limits. If that fails, adopt removes the sandbox. If err, the error of making the fork, is not nil, it
// only returns that.
func (s *Server) adopt(ctx context.Context, e *engine.Engine, rec *catalog.Record, m *meta, err error) error {
	if err == nil {
		err = s.note(ctx, e, rec, m)
	}
	if err != nil {
		return err
	}
	_, err = e.Supervise.SetLimits(ctx, rec.Name, func(l *catalog.Limits) error {
		*l = s.limits(*l, m, rec.AgeAt(catalog.Now()))
		return nil
	})
	if err != nil {
		err = errors.Join(err, e.Remove(context.WithoutCancel(ctx), rec.Name))
	}
	return err
}

// limits returns the limits l with the time limits for a sandbox of this age whose time-out begins now. At
// the time-out the sandbox is removed, or with AutoPause paused. The time-out never exceeds the operator's
// limits ttl and remove-after. A snapshot gets no time limits.
func (s *Server) limits(l catalog.Limits, m *meta, age time.Duration) catalog.Limits {
	own, end := s.o.Rules.Policy.Limits, age+m.Timeout
	if own.TTL > 0 {
		end = min(end, own.TTL)
	}
	switch {
	case m.Snapshot:
		l.TTL, l.RemoveAfter, l.KeepEnd = 0, 0, false
	case m.AutoPause:
		l = s.pausedAt(l, end)
	default:
		if most := own.RemovalAge(); most > 0 {
			end = min(end, most)
		}
		l.TTL, l.RemoveAfter, l.KeepEnd = 0, end, false
	}
	return l
}

// pausedAt returns the limits l with the time limits for a sandbox that a client pauses at this age: its
// time-out no longer ends it, but only the operator's limits.
func (s *Server) pausedAt(l catalog.Limits, age time.Duration) catalog.Limits {
	own := s.o.Rules.Policy.Limits
	l.TTL, l.RemoveAfter, l.KeepEnd = max(age, time.Millisecond), 0, own.KeepEnd
	if most := own.RemovalAge(); most > 0 {
		l.RemoveAfter = max(most-l.TTL, time.Millisecond)
	}
	return l
}
