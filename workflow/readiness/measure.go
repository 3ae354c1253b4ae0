package readiness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/selftest"
)

// pointNames are the names of the five points of the readiness checklist, which says whether this host can
// run a profile's sandboxes. start is that a command runs with the backend, kernel and runtime that the
// profile will use. The next three are the groups of self-tests: host files, processes, secrets and other
// sandboxes; network destinations; limits. log is that the evidence log has a run that succeeded and one that
// was refused.
var pointNames = []string{"start", selftest.KindIsolation, selftest.KindNetwork, selftest.KindLimit, "log"}

// A Measurement checks the five points of the readiness checklist, which say whether this host can run
// sandboxes as Request describes them. The caller fills the exported fields and calls Run.
type Measurement struct {
	Engine  *engine.Engine
	Request hostfs.Request
	// Program is the path of snapfs.
	Program    string
	Conditions Conditions
	// Each is called with every report of a self-test as soon as it is known.
	Each func(prove.Report)

	points  map[string]*Point
	counts  map[string]count // by point
	held    []string
	crossed []string
}

// A count has the numbers of the self-tests (attempts to break out of a sandbox) of one point of the
// readiness checklist, by their result.
type count struct{ held, busy, untried, all int }

// Run checks the five points of the readiness checklist, stores the signed result for [Current], and returns
// it with the evidence bundle of the sandbox in which the runs are recorded. A point that does not hold is no
// error. After an error there is no stored result, also no earlier one. Cost: that of
// [selftest.Tester.Prove].
func (m *Measurement) Run(ctx context.Context) (*Result, []byte, error) {
	cat := m.Engine.Catalog()
	if err := os.Remove(pathOf(cat.Dir(), m.Conditions)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, errs.With("removing the last result", "", err)
	}
	m.points, m.counts = map[string]*Point{}, map[string]count{}
	for _, name := range pointNames {
		m.points[name] = &Point{Name: name, Result: Untried, Why: "nothing was tried"}
	}
	err := selftest.New(m.Engine).Prove(ctx, m.Request, []string{m.Program, "probe"}, nil, func(r prove.Report) {
		m.note(r)
		m.Each(r)
	})
	if err != nil {
		return nil, nil, err
	}
	m.judge()
	key, err := evidence.Of(cat).Key()
	if err != nil {
		return nil, nil, err
	}
	r := &Result{Conditions: m.Conditions}
	exported, err := m.runs(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	r.Root, r.Measured, r.Up = exported.Root, time.Now().UTC(), hostinfo.Uptime().Milliseconds()
	return r, exported.Text, store(cat.Dir(), key, r)
}

// note counts r, the report of one self-test, for the point of the readiness checklist that the self-test
// belongs to.
func (m *Measurement) note(r prove.Report) {
	kind := selftest.KindOf(r.Probe)
	n := m.counts[kind]
	n.all++
	p := m.points[kind]
	switch {
	case r.Held:
		n.held++
		m.held = append(m.held, r.Probe)
	case r.Busy: // the attempt did not succeed, perhaps only because the machine is busy
		n.busy++
	case !r.WasTried():
		if p.Result != NotHeld {
			p.Result, p.Why = Untried, r.Probe+": "+r.Happened
		}
		n.untried++
	default:
		p.Result, p.Why = NotHeld, r.Probe+": "+r.Tried+": "+r.Happened
		m.crossed = append(m.crossed, r.Probe)
	}
	m.counts[kind] = n
}

// judge sets the results of those three points of the readiness checklist that self-tests decide: isolation,
// network and limits.
func (m *Measurement) judge() {
	for _, kind := range []string{selftest.KindIsolation, selftest.KindNetwork, selftest.KindLimit} {
		p, n := m.points[kind], m.counts[kind]
		switch {
		case p.Result == NotHeld || n.untried > 0:
		case n.all > 0 && n.held == 0:
			p.Why = "no self-test could tell on this busy machine"
		case n.all == 0 && kind == selftest.KindNetwork && m.Request.Policy.Network == "host":
			p.Result, p.Why = Held, "the profile uses the host's network: nothing to test"
		case n.all == 0 && kind == selftest.KindLimit:
			p.Result, p.Why = Held, "the profile has no limit that a self-test covers"
		case n.all > 0:
			p.Result, p.Why = Held, fmt.Sprintf("%d of %d self-tests held", n.held, n.all)
			if n.busy > 0 {
				p.Why += fmt.Sprintf("; %d inconclusive on a busy machine", n.busy)
			}
		}
		p.Why = strings.ToValidUTF8(p.Why, "�")
	}
}

// runs runs a command that succeeds and one that the policy refuses in a new sandbox with an evidence log,
// and checks both for the readiness checklist. It returns the sandbox's evidence bundle, and discards the
// sandbox.
func (m *Measurement) runs(ctx context.Context, r *Result) (_ *evidence.Exported, err error) {
	req := m.Request
	req.Name, req.Policy.Evidence, req.Policy.Prove, req.Policy.KeyPoints = "", true, false, nil
	tools := catalog.Tools{}
	if t := req.Policy.Tools; t != nil {
		tools = *t
	}
	tools.Deny = append(slices.Clone(tools.Deny), m.Program)
	if tools.Allow != nil {
		tools.Allow = append(slices.Clone(tools.Allow), "true")
	}
	req.Policy.Tools = &tools
	began := time.Now()
	s, err := m.Engine.Run(ctx, req, engine.Command{Args: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: req.Workspace})
	if err != nil {
		return nil, errs.Wrap("measuring the profile: starting its sandbox", req.Workspace, err)
	}
	defer func() { err = errors.Join(err, s.Discard(context.WithoutCancel(ctx))) }()
	r.Level = s.Supervisor.Container.Level().String()
	st, err := s.Wait(ctx)
	if err != nil {
		return nil, err
	}
	var backends []string
	for _, t := range s.Record.Trees {
		if !slices.Contains(backends, t.Driver) {
			backends = append(backends, t.Driver)
		}
	}
	r.Backends, r.Sandbox = strings.Join(backends, " "), s.Record.ID
	start := m.points["start"]
	start.Result, start.Why = Held, fmt.Sprintf("%s: a command ended with status 0, %v after the request", r.Backends, time.Since(began).Round(time.Millisecond))
	if st.ExitCode() != 0 {
		start.Result, start.Why = NotHeld, fmt.Sprintf("true ended with status %d", st.ExitCode())
	}
	log := m.points["log"]
	_, refusal := s.Again(ctx, engine.Command{Args: []string{m.Program, "version"}, Env: []string{}, Dir: req.Workspace})
	switch {
	case refusal == nil:
		log.Result, log.Why = NotHeld, "a program that the policy denies was executed"
	case !errors.Is(refusal, errs.ErrDenied):
		log.Result, log.Why = Untried, "no run could be refused: "+refusal.Error()
	default:
		log.Result, log.Why = Held, "the record has a run that succeeded, and one that was refused"
	}
	return m.record(ctx, s, r)
}

// record adds the results of the readiness checklist to the evidence log of the sandbox, closes the log, and
// returns the evidence bundle.
func (m *Measurement) record(ctx context.Context, s *engine.Session, r *Result) (*evidence.Exported, error) {
	m.Engine.Events().Append(events.Event{
		Type: events.SelfTested, Subject: s.Record.Name, SandboxID: s.Record.ID, Data: events.Data{Held: m.held, Crossed: m.crossed},
	})
	own := evidence.Of(m.Engine.Catalog())
	list := []any{}
	for _, name := range pointNames {
		p := *m.points[name]
		r.Points = append(r.Points, p)
		list = append(list, map[string]any{"name": p.Name, "result": p.Result, "why": p.Why})
	}
	data := map[string]any{"points": list, "backends": r.Backends, "level": r.Level, "kernel": m.Conditions.Kernel, "version": m.Conditions.Version, "profile": m.Conditions.Profile}
	if err := own.Log(s.Record.ID).Append(audit.Checklist, data, true); err != nil {
		return nil, err
	}
	if err := evidence.End(ctx, m.Engine, s.Record); err != nil {
		return nil, err
	}
	return own.Export(s.Record.ID)
}
