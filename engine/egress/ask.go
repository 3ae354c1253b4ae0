package egress

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/network"
)

// The policy of a sandbox can have connections to unknown destinations wait for a person. While such a sandbox runs, its
// supervisor serves a socket in the sandbox's directory. Other snapfs processes of the same user connect to it, list the
// waiting connections, and send a person's answers. The directory is not visible inside, so no process of the sandbox
// can answer. The sandbox of `snapfs run` has this socket, too, and no other one.

// An asking is the part of a [Proxy] that has connections wait for a person. Its options are nil in a sandbox whose
// connections do not wait.
type asking struct {
	options *network.Asking // for the proxy process, or nil
	policy  catalog.Policy
	name    string // of the sandbox
	path    string // of the socket
	listen  *fdsock.Conn
	info    os.FileInfo // identifies the socket
	served  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	waiting []network.Question
	denied  []string // rules, for a process that is started later
}

// An askRequest is a JSON message to the supervisor's socket for questions. Without a field it only lists the open
// questions.
type askRequest struct {
	Answer *network.Answer `json:"answer,omitempty"`
	// Allow are network rules to add to those of a run.
	Allow string `json:"allow,omitempty"`
}

// An askReply is the JSON reply to an askRequest: the questions that were open before the supervisor carried the request
// out, and the network rules in force; or an error with its kind.
type askReply struct {
	Waiting []network.Question `json:"waiting,omitempty"`
	Network string             `json:"network,omitempty"`
	Error   string             `json:"error,omitempty"`
	Kind    string             `json:"kind,omitempty"`
}

// The values of askReply.Kind.
const (
	kindDenied   = "denied"
	kindNotFound = "not found"
	kindInvalid  = "invalid"
)

// replyTimeout bounds how long a snapfs process waits for an askReply, and the supervisor for an askRequest.
const replyTimeout = 10 * time.Second

// Waiting returns the message that a connection of the sandbox called name waits for a person. rule is the network rule
// that would allow it.
func Waiting(name, rule string) string {
	arg := errs.Quoted(rule)
	return "a connection to " + rule + " waits for you: snapfs net " + name + " --allow " + arg + "   (with --once: this connection only; or --deny " + arg + ")"
}

// newAsking returns the part of a proxy that has connections wait, for the sandbox of rec in the directory dir.
func newAsking(rec *catalog.Record, dir string) (*asking, error) {
	a := &asking{policy: rec.Policy, name: rec.Name, path: filepath.Join(dir, "ask")}
	if rec.Policy.Ask == 0 {
		return a, nil
	}
	site, err := policy.ReadSite()
	if err != nil {
		return nil, err
	}
	a.options = &network.Asking{Wait: rec.Policy.Ask}
	if rec.Policy.Denied != "" {
		a.denied = []string{rec.Policy.Denied}
	}
	if site != nil {
		a.options.Within, _ = strings.CutPrefix(site.Sandbox.Net, hostfs.AllowNet)
		if a.options.Within == site.Sandbox.Net { // "host" or nothing: no bound; "none" leaves no proxy
			a.options.Within = ""
		}
	}
	return a, nil
}

// serveQuestions opens the socket of the questions, if connections wait, and serves it until stopQuestions.
func (o *Proxy) serveQuestions() error {
	a := o.asking
	if a.options == nil {
		return nil
	}
	if err := os.Remove(a.path); err != nil && !errors.Is(err, os.ErrNotExist) { // of a killed supervisor
		return err
	}
	l, err := fdsock.Listen(a.path)
	if err != nil {
		return err
	}
	if a.info, err = os.Lstat(a.path); err != nil {
		return errors.Join(err, l.Close())
	}
	a.listen = l
	a.served.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			o.answerClient(client)
			client.Close() //nolint:errcheck // the reply is complete
		}
	})
	return nil
}

// stopQuestions closes the socket of the questions. No question waits afterwards.
func (o *Proxy) stopQuestions() {
	a := o.asking
	if a.listen == nil {
		return
	}
	a.listen.Shutdown() //nolint:errcheck // wakes Accept
	a.served.Wait()
	a.listen.Close() //nolint:errcheck // a descriptor only
	if now, err := os.Lstat(a.path); err == nil && os.SameFile(now, a.info) {
		_ = os.Remove(a.path) // the next supervisor removes it otherwise
	}
	a.setWaiting(nil)
}

func (a *asking) setWaiting(all []network.Question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = all
}

// answerClient receives the request of another snapfs process about the questions, carries it out and replies. It
// ignores a process of another user than this one and root.
func (o *Proxy) answerClient(client *fdsock.Conn) {
	uid, err := client.PeerUID()
	if err != nil || uid != 0 && int(uid) != os.Geteuid() {
		return
	}
	for end := time.Now().Add(replyTimeout); ; {
		ready, err := client.Await(50 * time.Millisecond)
		if ready {
			break
		}
		select {
		case <-o.closing:
			return
		default:
		}
		if err != nil || time.Now().After(end) {
			return
		}
	}
	msg, files, err := client.Receive()
	fdsock.CloseAll(files)
	var q askRequest
	if err != nil || exactjson.Decode(msg, &q) != nil {
		return
	}
	if msg, err = exactjson.Encode(o.carryOut(q)); err == nil {
		_ = client.TrySend(msg) // the client may have gone
	}
}

// carryOut carries out the request q of another snapfs process about the questions.
func (o *Proxy) carryOut(q askRequest) (reply askReply) {
	reply.Network = o.Network()
	o.asking.mu.Lock()
	reply.Waiting = o.asking.waiting
	o.asking.mu.Unlock()
	var err error
	switch {
	case q.Answer != nil:
		err = o.decide(*q.Answer, reply.Waiting)
	case q.Allow != "":
		err = o.allowMore(q.Allow)
	}
	if err == nil {
		return reply
	}
	reply.Error = err.Error()
	for kind, is := range askKinds() {
		if errors.Is(err, is) {
			reply.Kind = kind
		}
	}
	return reply
}

// askKinds returns the kind of error that each value of askReply.Kind stands for.
func askKinds() map[string]error {
	return map[string]error{kindDenied: errs.ErrDenied, kindNotFound: errs.ErrNotFound, kindInvalid: errs.ErrInvalid}
}

// decide carries out a person's answer about waiting, the questions that are open. Errors: errs.ErrNotFound if it is
// about none of them and not for later connections, ErrDenied if the site's policy allows less, ErrInvalid for a
// denial of what a rule allows.
func (o *Proxy) decide(answer network.Answer, waiting []network.Question) error {
	rules, err := network.Parse(answer.Rules)
	if err != nil {
		return err
	}
	if answer.Allow {
		text := hostfs.AllowNet + rules.String()
		allowed, err := policy.AllowedNetwork(o.asking.name, catalog.Policy{Network: "none"}, text)
		if err != nil {
			return err
		}
		if allowed != text {
			return errs.New("allowing", o.asking.name, errs.ErrDenied, "the site's policy allows no more than "+allowed)
		}
	}
	o.life.Lock()
	defer o.life.Unlock()
	if !answer.Allow && answer.Always {
		if err := requireUnallowed(o.asking.name, o.rules, rules); err != nil {
			return err
		}
	} else if !isAbout(rules, waiting) {
		return errs.New("answering", o.asking.name, errs.ErrNotFound, "no connection to "+rules.String()+" waits")
	}
	if !answer.Allow && answer.Always {
		o.asking.denied = append(o.asking.denied, rules.String())
	}
	if o.conn == nil {
		return nil // nothing waits, and the next process gets what is denied
	}
	return o.sendAnswer(answer)
}

// requireUnallowed returns an error if the network setting of the sandbox called name allows a destination of rules:
// then a denial of that destination would have no effect.
func requireUnallowed(name, setting string, rules network.Rules) error {
	now, err := network.Parse(strings.TrimPrefix(setting, hostfs.AllowNet))
	if both := now.Both(rules); err == nil && !both.Empty() {
		return errs.New("denying", name, errs.ErrInvalid, "a rule of the sandbox allows "+both.String())
	}
	return nil
}

// isAbout reports whether the network rules allow the destination of one of the questions all.
func isAbout(rules network.Rules, all []network.Question) bool {
	for _, q := range all {
		one, err := network.Parse(q.Rule)
		if both := rules.Both(one); err == nil && both.String() == one.String() {
			return true
		}
	}
	return false
}

// sendAnswer sends a person's answer to the proxy process, unless that has just ended. The caller holds o.life.
func (o *Proxy) sendAnswer(answer network.Answer) error {
	msg, err := exactjson.Encode(network.Message{Answer: &answer})
	if err == nil {
		err = o.conn.Send(msg)
	}
	if fdsock.HungUp(err) {
		return nil
	}
	return err
}

// sendDenied sends a new proxy process the destinations that a person has denied. The caller holds o.life.
func (o *Proxy) sendDenied() error {
	for _, rules := range o.asking.denied {
		if err := o.sendAnswer(network.Answer{Rules: rules, Always: true}); err != nil {
			return err
		}
	}
	return nil
}

// allowMore adds the network rules more to those of a run, as far as the site's policy allows them.
func (o *Proxy) allowMore(more string) error {
	p := o.asking.policy
	p.Network = o.Network()
	rules, err := network.Parse(strings.TrimPrefix(p.Network, hostfs.AllowNet) + "," + more)
	if err != nil {
		return err
	}
	text, err := policy.AllowedNetwork(o.asking.name, p, hostfs.AllowNet+rules.String())
	if err != nil {
		return err
	}
	if rules.HasMethods() && o.brokered == nil {
		return errs.New("allowing", o.asking.name, errs.ErrInvalid, "a rule with methods needs a proxy that was started with one")
	}
	return o.Allow(text)
}

// Network returns the network setting of the sandbox, with the rules that were added since its start.
func (o *Proxy) Network() string {
	o.life.Lock()
	defer o.life.Unlock()
	return o.rules
}

// Questions returns the destinations to which connections of a sandbox wait for a person, and the network setting of the
// sandbox with the rules that were added since its start. Both are empty if the sandbox does not run, or if its policy
// has no connection wait.
func (eg *Gateway) Questions(rec *catalog.Record) (waiting []network.Question, setting string, err error) {
	if rec.Policy.Ask == 0 {
		return nil, "", nil
	}
	reply, err := eg.ask(rec, askRequest{})
	if reply == nil {
		return nil, "", err
	}
	return reply.Waiting, reply.Network, err
}

// Answer carries out a person's answer about destinations that wait in a sandbox. Errors: errs.ErrNotFound if no
// such connection waits, or the sandbox does not run; ErrDenied if the site's policy allows less; ErrInvalid.
func (eg *Gateway) Answer(rec *catalog.Record, answer network.Answer) error {
	return eg.send(rec, askRequest{Answer: &answer})
}

// Deny refuses the waiting connections of the sandbox h to the destinations of rules, and later ones without a question,
// also after a restart. Errors: errs.ErrNotSupported for a sandbox whose connections do not wait; ErrInvalid if a rule
// of the sandbox allows such a destination.
func (eg *Gateway) Deny(h *catalog.Locked, rules network.Rules) error {
	if h.Policy.Ask == 0 {
		return errs.New("denying", h.Name, errs.ErrNotSupported, "the sandbox was made without --ask: it refuses what no rule allows",
			"snapfs exec --ask "+h.Name+" -- COMMAND   # from the next start on")
	}
	if err := requireUnallowed(h.Name, h.Policy.Network, rules); err != nil {
		return err
	}
	all := rules
	if h.Policy.Denied != "" {
		denied, err := network.Parse(h.Policy.Denied)
		if err != nil {
			return err
		}
		if all, err = denied.With(rules); err != nil {
			return err
		}
	}
	reply, err := eg.ask(h.Record, askRequest{Answer: &network.Answer{Rules: rules.String(), Always: true}})
	switch {
	case err != nil:
		return err
	case reply != nil && reply.Error != "":
		return &errs.Error{Kind: askKinds()[reply.Kind], Err: errors.New(reply.Error)}
	}
	h.Policy.Denied = all.String()
	return h.Save()
}

// AllowRun adds network rules to the sandbox of a `snapfs run` whose policy has connections wait. The rules apply until
// that sandbox ends. Errors: those of [Gateway.Answer].
func (eg *Gateway) AllowRun(rec *catalog.Record, more network.Rules) error {
	return eg.send(rec, askRequest{Allow: more.String()})
}

func (eg *Gateway) send(rec *catalog.Record, q askRequest) error {
	reply, err := eg.ask(rec, q)
	switch {
	case err != nil:
		return err
	case reply == nil:
		return &errs.Error{
			Op: "answering", Subject: rec.Name, Kind: errs.ErrNotFound, Err: errors.New("nothing waits: the sandbox does not run, or was made without --ask"),
			Hints: []string{"snapfs run --ask --net allow:RULES …"},
		}
	case reply.Error != "":
		return &errs.Error{Kind: askKinds()[reply.Kind], Err: errors.New(reply.Error), Hints: []string{"snapfs net " + rec.Name + "   # lists what waits"}}
	}
	return nil
}

// ask sends the request q to the supervisor of a sandbox and returns the reply, or nil if no supervisor serves questions.
func (eg *Gateway) ask(rec *catalog.Record, q askRequest) (*askReply, error) {
	conn, err := fdsock.Dial(filepath.Join(eg.Catalog.Path(rec.Name), "ask"))
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil //nolint:nilnil // none serves
	}
	if err != nil {
		return nil, errs.With("listing what waits", rec.Name, err)
	}
	defer conn.Close() //nolint:errcheck // the reply is complete
	msg, err := exactjson.Encode(q)
	if err == nil {
		err = conn.Send(msg)
	}
	for end := time.Now().Add(replyTimeout); err == nil && time.Now().Before(end); {
		var ready bool
		if ready, err = conn.Await(time.Second); ready && err == nil {
			return receiveReply(conn)
		}
	}
	if err == nil {
		err = errs.New("listing what waits", rec.Name, errs.ErrBusy, "the supervisor of the sandbox does not reply")
	}
	if fdsock.HungUp(err) {
		return nil, nil //nolint:nilnil // it has just ended
	}
	return nil, err
}

func receiveReply(conn *fdsock.Conn) (*askReply, error) {
	msg, files, err := conn.Receive()
	fdsock.CloseAll(files)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the supervisor has just ended
	}
	reply := new(askReply)
	return reply, exactjson.Decode(msg, reply)
}
