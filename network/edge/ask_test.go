//go:build linux

package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/fingerprint"
	"github.com/snapfs/snapfs/network"
)

// askingWorld is a world whose proxy holds connections to unknown destinations. It allows known.example. The server
// of site.example, an echo, is at port 7.
type askingWorld struct {
	*world
	mu   sync.Mutex
	open []network.Question
}

func newAskingWorld(t *testing.T, a network.Asking, options ...func(*Options)) *askingWorld {
	t.Helper()
	w := &askingWorld{}
	w.world = newWorld(t, "known.example", append(options, func(o *Options) {
		o.Asking = &a
		o.Questions = func(all []network.Question) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.open = all
		}
	})...)
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:7", echo)
	return w
}

func (w *askingWorld) questions() []network.Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// awaitQuestion waits until connections to the destination of rule wait.
func (w *askingWorld) awaitQuestion(t *testing.T, rule string, connections int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		all := w.questions()
		for _, q := range all {
			if q.Rule == rule && q.Connections >= connections {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody is asked about %s, but %+v", rule, all)
		}
	}
}

// talk starts a client inside that exchanges some bytes with a server, and returns a function that waits for it.
func (w *askingWorld) talk(t *testing.T, to string) (ended func() result) {
	t.Helper()
	results := make(chan result, 1)
	go func() {
		results <- w.play(t, step{Dial: to}, step{Send: []byte("hello")}, step{Read: 5})
	}()
	return func() result { return <-results }
}

func (w *askingWorld) decide(t *testing.T, a network.Answer) {
	t.Helper()
	if err := w.edge.Decide(a); err != nil {
		t.Fatal(err)
	}
}

// TestUnknownDestinationWaitsUntilItIsAllowedOnce, and the next connection waits again. A change of the rules
// does not end the allowed one.
func TestUnknownDestinationWaitsUntilItIsAllowedOnce(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: time.Minute})
	ended := w.talk(t, "tcp4 site.example:7")
	w.awaitQuestion(t, "site.example:7", 1)
	asked := w.awaitEvent(t, "the question", func(ev network.Event) bool { return ev.Asked })
	if asked.Allowed || asked.Name != "site.example" || asked.Port != 7 || asked.Kind != network.TCP {
		t.Errorf("the event of the question is %+v", asked)
	}
	w.decide(t, network.Answer{Rules: "other.example", Allow: true}) // about another destination
	if len(w.questions()) != 1 {
		t.Error("an answer about another destination is taken for this one")
	}
	w.decide(t, network.Answer{Rules: "site.example:7", Allow: true})
	if r := ended(); r.Err != "" || string(r.Read) != "hello" {
		t.Errorf("allowed once: %q, %s", r.Read, r.Err)
	}
	ev := w.awaitEvent(t, "the allowed connection", func(ev network.Event) bool { return ev.Allowed && ev.Kind == network.TCP && !ev.Ended })
	if ev.Rule != "site.example:7" || ev.Why != onceWhy {
		t.Errorf("the event of the connection is %+v", ev)
	}
	if len(w.questions()) != 0 {
		t.Errorf("%+v wait after the answer", w.questions())
	}

	results := make(chan result, 1)
	go func() {
		results <- w.play(t, step{Dial: "tcp4 site.example:7"}, step{Send: []byte("hello")}, step{Read: 5}, step{Read: 1})
	}()
	w.awaitQuestion(t, "site.example:7", 1)
	w.forgetEvents()
	w.decide(t, network.Answer{Rules: "site.example:7", Allow: true})
	w.awaitEvent(t, "the second connection", func(ev network.Event) bool { return ev.Allowed && ev.Kind == network.TCP })
	rules, err := network.Parse("known.example,more.example")
	if err != nil {
		t.Fatal(err)
	}
	w.edge.Allow(rules)
	for deadline := time.Now().Add(time.Minute); w.edge.Counters().BytesIn < 10; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no bytes pass")
		}
	}
	if n := w.edge.Counters().Open; n != 1 {
		t.Errorf("%d connections are open after a change of the rules", n)
	}
	_ = w.edge.Close()
	if r := <-results; string(r.Read) != "hello" {
		t.Errorf("the second connection: %q, %s", r.Read, r.Err)
	}
}

// TestANewRuleAllowsWhatWaits, all connections to it, and later ones without a question.
func TestANewRuleAllowsWhatWaits(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: time.Minute})
	both := make(chan result, 1)
	go func() {
		both <- w.play(t, step{Crowd: 2, CrowdSteps: []step{{Dial: "tcp site.example:7"}, {Send: []byte("hello")}, {Read: 5}}})
	}()
	w.awaitQuestion(t, "site.example:7", 2)
	if len(w.questions()) != 1 {
		t.Errorf("one destination is in several questions: %+v", w.questions())
	}
	rules, err := network.Parse("known.example,*.example:7")
	if err != nil {
		t.Fatal(err)
	}
	w.edge.Allow(rules)
	if r := <-both; len(r.Errs) > 0 || string(r.Read) != "hellohello" {
		t.Errorf("%q, %q", r.Read, r.Errs)
	}
	if r := w.talk(t, "tcp site.example:7")(); r.Err != "" || string(r.Read) != "hello" {
		t.Errorf("later: %q, %s", r.Read, r.Err)
	}
	ev := w.awaitEvent(t, "an allowed connection", func(ev network.Event) bool { return ev.Allowed && ev.Kind == network.TCP })
	if ev.Rule != "*.example:7" {
		t.Errorf("%+v", ev)
	}
}

// TestDeniedDestinationIsRefused at once, and with Always without a further question.
func TestDeniedDestinationIsRefused(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: time.Minute})
	for _, always := range []bool{false, true} {
		ended := w.talk(t, "tcp4 site.example:7")
		w.awaitQuestion(t, "site.example:7", 1)
		w.decide(t, network.Answer{Rules: "site.example", Always: always})
		if r := ended(); !strings.Contains(r.Err, "refused") || r.Took > 30*time.Second {
			t.Errorf("%q after %v", r.Err, r.Took)
		}
		w.refused(t, network.TCP, "site.example", deniedWhy)
		w.forgetEvents()
	}
	if r := w.talk(t, "tcp4 site.example:7")(); !strings.Contains(r.Err, "refused") {
		t.Errorf("denied always: %q", r.Err)
	}
	w.refused(t, network.TCP, "site.example", deniedWhy)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) != 0 {
		t.Errorf("%+v wait", w.open)
	}
}

// TestUnansweredQuestionEnds: the connection is refused, as it is without questions.
func TestUnansweredQuestionEnds(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: 500 * time.Millisecond})
	if r := w.talk(t, "tcp4 site.example:7")(); !strings.Contains(r.Err, "refused") {
		t.Errorf("%q", r.Err)
	}
	w.refused(t, network.TCP, "site.example", "nobody allowed it within 500ms")
	if n := w.edge.Counters().Opened; n != 0 || len(w.questions()) != 0 {
		t.Errorf("%d connections were opened, and %+v wait", n, w.questions())
	}
}

// TestNobodyIsAskedAboutSomeDestinations: they are refused at once, as without questions.
func TestNobodyIsAskedAboutSomeDestinations(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: time.Minute, Within: "known.example,*.corp.example:443"})
	for _, c := range []struct{ dial, err string }{
		{"tcp site.example:7", "no such host"}, // outside of the site's rules
		{"tcp x.corp.example:80", "refused"},   // the name is within them, and this port is not
		{"tcp 169.254.169.254:80", "refused"},  // the metadata service of a cloud
		{"tcp 10.0.0.1:80", "refused"},
		{"tcp 203.0.113.10:7", "refused"},
		{"tcp 198.19.77.77:80", "refused"}, // stands for no name
		{"tcp 8.8.8.8:53", "refused"},      // another resolver
		{"tcp single:80", "no such host"},
		{"tcp 4.3.2.1.in-addr.arpa:80", "no such host"},
	} {
		if r := w.play(t, step{Dial: c.dial}); !strings.Contains(r.Err, c.err) || r.Took > 30*time.Second {
			t.Errorf("%s: %q after %v, not %q", c.dial, r.Err, r.Took, c.err)
		}
	}
	if w.questions() != nil {
		t.Errorf("a person was asked about %+v", w.questions())
	}
}

// TestAQuestionIsAboutTheDestinationAndALabelAboutTheContent: with labelled files a person decides about each server, and
// the proxy searches each request there, whether a rule or one answer allowed it. Nobody is asked about an address, to
// which nothing that can be searched is sent, nor about a server that a rule with methods names.
func TestAQuestionIsAboutTheDestinationAndALabelAboutTheContent(t *testing.T) {
	build := fingerprint.NewBuilder(nil)
	if err := build.Add(fingerprint.Source{Kind: fingerprint.Secret, Name: "/w/env"}, strings.NewReader("KEY=s3cr3t-value-77\n")); err != nil {
		t.Fatal(err)
	}
	var b *brokering
	w := newAskingWorld(t, network.Asking{Wait: time.Minute}, func(o *Options) {
		b = &brokering{config: &network.BrokerConfig{Sandbox: "fix", Labels: true}, labels: build.Set()}
		if err := (server{}).broker(o, b); err != nil {
			t.Fatal(err)
		}
	})
	b.edge.Store(w.edge)
	w.serve(t, "203.0.113.10:80", func(conn net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	post := func(body string) (ended func() result) {
		text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		results := make(chan result, 1)
		go func() {
			results <- w.play(t, step{Dial: "tcp4 site.example:80"}, step{Send: []byte(text)}, step{Read: 12})
		}()
		return func() result { return <-results }
	}
	send := func(how, body, status string) {
		t.Helper()
		ended := post(body)
		if how == "once" {
			w.awaitQuestion(t, "site.example:80", 1)
			w.decide(t, network.Answer{Rules: "site.example:80", Allow: true})
		}
		if r := ended(); string(r.Read) != "HTTP/1.1 "+status {
			t.Errorf("%s, %q: %q, %s; want %s", how, body, r.Read, r.Err, status)
		}
	}
	send("once", "the weather is fine", "204")
	send("once", "s3cr3t-value-77", "403")
	if r := w.play(t, step{Dial: "tcp 203.0.113.10:80"}); !strings.Contains(r.Err, "refused") || r.Took > 30*time.Second {
		t.Errorf("an address: %q after %v", r.Err, r.Took)
	}
	rules, err := network.Parse("known.example,site.example:80,GET http://other.example/")
	if err != nil {
		t.Fatal(err)
	}
	w.edge.Allow(rules)
	send("by a rule", "the weather is fine", "204")
	send("by a rule", "s3cr3t-value-77", "403")
	if rule, ask := w.edge.asksAbout(target{name: "other.example", port: 80}, "no rule"); ask {
		t.Errorf("a person is asked about %s, which a rule with methods names", rule)
	}
	if len(w.questions()) != 0 {
		t.Errorf("%+v wait", w.questions())
	}
}

// TestFewConnectionsWait: those beyond the bounds are refused at once.
func TestFewConnectionsWait(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: time.Minute})
	many := make(chan result, 1)
	go func() {
		many <- w.play(t, step{Crowd: network.MaxHeld + 10, CrowdSteps: []step{{Dial: "tcp4 site.example:7"}, {Send: []byte("x")}, {Read: 1}}})
	}()
	for deadline := time.Now().Add(time.Minute); w.edge.Counters().Refused < 10; time.Sleep(5 * time.Millisecond) { // all have come
		if time.Now().After(deadline) {
			t.Fatal("no connection is refused beyond the bound")
		}
	}
	w.awaitQuestion(t, "site.example:7", network.MaxHeld)
	w.decide(t, network.Answer{Rules: "site.example:7", Allow: true})
	if r := <-many; len(r.Errs) != 10 || len(r.Read) != network.MaxHeld {
		t.Errorf("%d connections passed, and %d were refused: %q", len(r.Read), len(r.Errs), r.Errs)
	}

	for i := range network.MaxQuestions {
		name := fmt.Sprintf("n%d.site.example", i)
		if _, why := w.edge.join(target{name: name, port: 7}, name+":7"); why != "" {
			t.Fatal(why)
		}
	}
	w.forgetEvents()
	if r := w.talk(t, "tcp4 site.example:7")(); !strings.Contains(r.Err, "refused") {
		t.Errorf("one more destination: %q", r.Err)
	}
	w.refused(t, network.TCP, "site.example", manyWhy)
}

// TestNothingWaitsForAClosedProxy: a client inside sees a refused connection.
func TestNothingWaitsForAClosedProxy(t *testing.T) {
	w := newAskingWorld(t, network.Asking{Wait: time.Minute})
	ended := w.talk(t, "tcp4 site.example:7")
	w.awaitQuestion(t, "site.example:7", 1)
	began := time.Now()
	if err := w.edge.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the proxy closes after %v", took)
	}
	if r := ended(); r.Err == "" {
		t.Error("the connection was allowed")
	}
}
