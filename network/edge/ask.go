//go:build linux

package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/network"
)

// questions holds the connections of the sandbox to unknown destinations until a person decides: one question for each
// destination. With the zero value, the proxy refuses such connections at once.
type questions struct {
	wait    time.Duration // 0 if nobody is asked
	bounded bool          // whether only destinations that within allows wait
	within  network.Rules

	mu     sync.Mutex // guards the fields below, and is held during Options.Questions
	open   []*question
	held   int // connections of all open questions
	denied network.Rules
}

// A question is a destination that waits for a person, with the connections to it that the proxy holds.
type question struct {
	rule        string
	target      target
	until       time.Time
	connections int
	done        chan struct{} // closed once it is decided
	// once and why are set before done is closed: the connections are allowed, or refused for a reason. Without
	// both, a rule decides.
	once bool
	why  string
}

// Reasons, in events of the sandbox's network log, for decisions about connections that waited for a person.
const (
	onceWhy   = "a person allowed this connection"
	deniedWhy = "a person denied it"
	manyWhy   = "too many connections wait for a person"
)

// start sets how long connections wait, and for which destinations, to the values in o. With a nil o none wait. Errors:
// errs.ErrInvalid for rules that cannot be parsed.
func (a *questions) start(o *network.Asking) (err error) {
	if o == nil {
		return nil
	}
	a.wait = o.Wait
	if a.bounded = o.Within != ""; a.bounded {
		a.within, err = network.Parse(o.Within)
	}
	return err
}

// asksAboutName reports whether a person may be asked about connections to the host name on some port, so that
// the name gets an address inside.
func (e *Edge) asksAboutName(name string) bool {
	if e.questions.wait == 0 || !network.AskableName(name) {
		return false
	}
	if !e.questions.bounded {
		return true
	}
	_, ok := e.questions.within.Resolves(name)
	return ok
}

// asksAbout reports whether a connection to the destination t, which the rules refuse with the reason why, waits for a
// person, and returns the rule that would allow it. Nobody is asked about a server that a secret, a budget or a rule
// with methods names, nor about this host, nor about what would be refused with a rule, too: with labelled files the
// answer is about the destination, and the proxy searches each request all the same.
func (e *Edge) asksAbout(t target, why string) (rule string, ask bool) {
	if e.questions.wait == 0 || why == "" || t.rule != "" || t.at != 0 || e.unread(t) != "" {
		return "", false
	}
	if b := e.options.Broker; b != nil && b.Names(t.name, t.port) {
		return "", false
	}
	to := netip.AddrPortFrom(t.addr, t.port)
	if rule, ask = network.QuestionAbout(t.name, to); !ask {
		return "", false
	}
	if t.name == "" && e.unfit(t.addr, t.port) != "" {
		return "", false
	}
	if e.questions.bounded {
		_, why := t.matchRules(e.questions.within)
		ask = why == ""
	}
	return rule, ask
}

// hold waits until a person has decided about a connection to the destination t, which rule would allow. It returns
// the reason of a refusal, or "". Then the field once of the returned destination says whether the person has allowed
// this connection; if not, the caller checks the rules again. hold refuses at once a destination that a person
// has denied before, and connections beyond the bounds of package network.
func (e *Edge) hold(t target, rule string) (_ target, why string) {
	q, why := e.join(t, rule)
	if why != "" {
		return t, why
	}
	defer e.leave(q)
	late := time.NewTimer(time.Until(q.until))
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
		e.settle(func(other *question) bool { return other == q }, false, fmt.Sprintf("nobody allowed it within %v", e.questions.wait))
		<-q.done // decided here, or just before
	case <-e.ctx.Done():
		return t, closedWhy
	}
	if q.once {
		t.rule, t.once = q.rule, true
	}
	return t, q.why
}

// join adds a connection to the question about the destination t, which rule would allow; the first one opens the
// question. why is the reason of a refusal, or "".
func (e *Edge) join(t target, rule string) (q *question, why string) {
	a := &e.questions
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, no := t.matchRules(a.denied); no == "" {
		return nil, deniedWhy
	}
	if a.held >= network.MaxHeld {
		return nil, manyWhy
	}
	if i := slices.IndexFunc(a.open, func(q *question) bool { return q.rule == rule }); i >= 0 {
		q = a.open[i]
	} else if len(a.open) >= network.MaxQuestions {
		return nil, manyWhy
	}
	isNew := q == nil
	if isNew {
		q = &question{rule: rule, target: t, until: time.Now().Add(a.wait), done: make(chan struct{})}
		a.open = append(a.open, q)
	}
	a.held++
	q.connections++
	e.reportQuestions()
	if isNew {
		ev := t.event(network.TCP)
		ev.Asked, ev.Why = true, "no rule allows it: a person is asked"
		e.events.put(ev)
	}
	return q, ""
}

// leave ends the wait of one connection for the question q.
func (e *Edge) leave(q *question) {
	e.questions.mu.Lock()
	defer e.questions.mu.Unlock()
	e.questions.held--
	q.connections--
}

// settle decides the open questions that fits selects: their connections are allowed (once), or refused with the
// reason why, or, without both, the rules decide.
func (e *Edge) settle(fits func(*question) bool, once bool, why string) {
	a := &e.questions
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.open)
	a.open = slices.DeleteFunc(a.open, func(q *question) bool {
		if !fits(q) {
			return false
		}
		q.once, q.why = once, why
		close(q.done)
		return true
	})
	if len(a.open) < before {
		e.reportQuestions()
	}
}

// settleAllowed decides the open questions about destinations that the new network rules r allow.
func (e *Edge) settleAllowed(r network.Rules) {
	e.settle(func(q *question) bool {
		_, why := q.target.matchRules(r)
		return why == ""
	}, false, "")
}

// Decide carries out a person's answer about the connections that wait, and for a refusal with Always also about
// later ones. Errors: errs.ErrInvalid for rules that cannot be parsed.
func (e *Edge) Decide(answer network.Answer) error {
	rules, err := network.Parse(answer.Rules)
	if err != nil {
		return err
	}
	fits := func(q *question) bool {
		_, why := q.target.matchRules(rules)
		return why == ""
	}
	if answer.Allow {
		e.settle(fits, true, "")
		return nil
	}
	if answer.Always {
		if err := e.deny(rules); err != nil {
			return err
		}
	}
	e.settle(fits, false, deniedWhy)
	return nil
}

// deny adds network rules to those of the destinations that a person has denied.
func (e *Edge) deny(rules network.Rules) error {
	a := &e.questions
	a.mu.Lock()
	defer a.mu.Unlock()
	all, err := a.denied.With(rules)
	if err == nil {
		a.denied = all
	}
	return err
}

// reportQuestions passes the open questions to the supervisor. The caller holds the mutex of e.questions.
func (e *Edge) reportQuestions() {
	if e.options.Questions == nil {
		return
	}
	all := make([]network.Question, len(e.questions.open))
	for i, q := range e.questions.open {
		all[i] = network.Question{Rule: q.rule, Connections: q.connections, Until: q.until}
	}
	e.options.Questions(all)
}
