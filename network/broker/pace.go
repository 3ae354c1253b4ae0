package broker

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
)

// A pace counts the HTTP requests that each network rule with a rate has allowed recently. The zero value has counted
// none.
type pace struct {
	mu    sync.Mutex
	rules map[string]*bucket // by the rule's text without options
}

// A bucket has room for the N requests that a rate allows in a period, and is emptied evenly over the period.
type bucket struct {
	rate  network.Rate
	level float64 // requests in it at the time at
	at    time.Time
}

// take adds a request at the time now to the bucket of rule. If the bucket is full, it adds none and returns how long
// the next request must wait.
func (p *pace) take(rule string, rate network.Rate, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.rules[rule]
	if b == nil || b.rate != rate { // new, or changed while the sandbox runs
		b = &bucket{rate: rate, at: now}
		if p.rules == nil {
			p.rules = map[string]*bucket{}
		}
		p.rules[rule] = b
	}
	each := float64(rate.Seconds) / float64(rate.N) // seconds for one request
	b.level = max(0, b.level-now.Sub(b.at).Seconds()/each)
	b.at = now
	if room := float64(rate.N) - b.level; room < 1 {
		return time.Duration((1 - room) * each * float64(time.Second))
	}
	b.level++
	return 0
}

// bound checks the request r, which the network rule allows, by that rule's options +rate and +body. It returns a
// refusal of a request that exceeds them, or nil. With +body it replaces the body of r by one that fails beyond the
// limit, since the length of a body may not be known before.
func (b *Broker) bound(r *http.Request, rule string) *refusal {
	terms := b.options.Rules().Terms(rule)
	if terms.Body > 0 {
		if r.ContentLength > terms.Body {
			return longer(terms.Body, rule)
		}
		r.Body = &boundBody{ReadCloser: r.Body, left: terms.Body, limit: terms.Body}
	}
	if terms.Rate.N == 0 {
		return nil
	}
	wait := b.pace.take(network.Plain(rule), terms.Rate, time.Now())
	if wait == 0 {
		return nil
	}
	seconds := int(math.Ceil(wait.Seconds()))
	return &refusal{
		status: http.StatusTooManyRequests, rule: rule, again: true, after: seconds,
		why: fmt.Sprintf("the rate of the rule %s is reached; the next request may come in %d s", rule, seconds),
	}
}

// longer returns the refusal of a request whose body has more bytes than limit, that of a network rule.
func longer(limit int64, rule string) *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, rule: rule, why: fmt.Sprintf("the body of the request is larger than the %s of the rule %s", units.FormatSize(limit), rule)}
}

// A boundBody is the body of a sandbox's request that a network rule bounds in size. Reading it fails beyond that.
type boundBody struct {
	io.ReadCloser
	left, limit int64
	over        atomic.Bool
}

func (b *boundBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.over.Store(true)
		return 0, errOver
	}
	return n, err
}

// tooLong returns the refusal of the request r if its body has exceeded the size that the network rule allows, or nil.
func tooLong(r *http.Request, rule string) *refusal {
	if body, ok := r.Body.(*boundBody); ok && body.over.Load() {
		return longer(body.limit, rule)
	}
	return nil
}
