package broker

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

// A bill is the cost of one HTTP request of the sandbox to its budget (limits of requests, bytes, model
// tokens and money), from its reservation to its settlement. A nil bill costs nothing.
type bill struct {
	broker  *Broker
	reserve *budget.Reservation
	tokens  bool // the response reports tokens
	model   string
	price   *budget.Price
	reader  budget.Meter
	sent    *sentBody
	whole   bool // the response was read to its end
	open    bool // the request does not bound its output

	once sync.Once
}

// reserve reserves the greatest cost of the request out in the sandbox's budget, or returns why the request
// is refused. It may replace the body, to make the response report its usage. The bill is nil without a
// budget.
func (b *Broker) reserve(out *http.Request, q network.Request) (*bill, *refusal) {
	if b.ledger == nil {
		return nil, nil
	}
	one := &bill{broker: b}
	worst := budget.Count{Requests: 1, Sent: max(0, out.ContentLength)}
	if limits := b.ledger.Limits(); b.meters(q.Name) && limits.HasTokens() {
		what := "tokens"
		if limits.Money > 0 {
			what = "money"
		}
		switch budget.RouteOf(q.Method, q.Path) {
		case budget.Unmetered:
			return nil, &refusal{status: http.StatusForbidden, why: "a budget of " + what + " is set, and nobody reports the tokens of " + q.Method + " " + q.Path}
		case budget.Metered:
			text, no := b.hold(out)
			if no != nil {
				return nil, no
			}
			if key := cmp.Or(budget.HidesUsage(out.URL.RawQuery), out.Header.Get("X-Goog-Fieldmask")); key != "" {
				return nil, &refusal{status: http.StatusBadRequest, why: "a budget of " + what + " is set, and the answer may leave out the tokens: the query or a header selects its form by " + strconv.Quote(key)}
			}
			w, err := budget.WorstOf(q.Path, text, b.options.Config.Prices, limits.Money > 0)
			if err != nil {
				return nil, &refusal{status: http.StatusBadRequest, why: "a budget of " + what + " is set, and this request cannot be counted: " + err.Error()}
			}
			if no := b.setBody(out, w.Send); no != nil {
				return nil, no
			}
			worst, one.tokens, one.model, one.price, one.open = w.Count, true, w.Model, w.Price, w.Open
			one.reader.InputOnly = strings.HasSuffix(q.Path, "/embeddings")
		case budget.Free:
		}
	}
	reserve, over, err := b.ledger.Reserve(worst)
	switch {
	case err != nil:
		return nil, uncounted(err)
	case over != nil:
		return nil, b.over(over)
	}
	one.reserve = reserve
	b.open.Add(1)
	if out.Body != nil && out.Body != http.NoBody {
		one.sent = &sentBody{ReadCloser: out.Body, bill: one, reserved: worst.Sent}
		out.Body = one.sent
	}
	return one, nil
}

// uncounted returns the refusal of a request whose cost could not be written to the files of the sandbox's
// budget, because of err.
func uncounted(err error) *refusal {
	return &refusal{status: http.StatusTooManyRequests, why: "the budget cannot be counted: " + err.Error()}
}

// over returns the refusal of a request that exceeds a limit of the budget, with the command that increases the limit.
// A request that is too large for the whole limit does not pause the sandbox, and the client must not repeat it.
func (b *Broker) over(e *budget.Exceeded) *refusal {
	no := &refusal{status: http.StatusTooManyRequests, why: e.Why()}
	if e.Asked >= 0 { // otherwise no limit is high enough
		no.why += ". On the host: snapfs budget raise " + b.options.Config.Sandbox + " " + e.What + " +N"
	}
	switch {
	case e.TooLarge():
	case e.Spent():
		no.spent = &network.SpentLimit{Limit: e.What, Value: e.Limit}
		no.again = b.options.Config.Pauses
	default:
		no.again = true
	}
	return no
}

// errOver is the error of reading a request body that exceeds the sandbox's budget, or the size that a network rule
// allows, while it is being sent, so that the request is cut.
var errOver = errors.New("the body is longer than is allowed")

// A sentBody is the body of a sandbox's request on its way to the server. It counts the bytes in the
// sandbox's budget, and fails once a limit is reached.
type sentBody struct {
	io.ReadCloser
	bill     *bill
	reserved int64
	mu       sync.Mutex // guards the fields below
	n        int64
	over     *refusal // of the rest
}

func (s *sentBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += int64(n)
	if more := s.n - s.reserved; more > 0 {
		over, err := s.bill.reserve.Extend(budget.Count{Sent: more})
		if over != nil || err != nil {
			s.n -= int64(n) // they are not sent
			if over != nil {
				s.over = s.bill.broker.over(over)
			} else {
				s.over = uncounted(err)
			}
			return 0, errOver
		}
		s.reserved = s.n
	}
	return n, err
}

// refused returns the refusal to answer the client with if the budget ended the body of the request early, or
// nil.
func (l *bill) refused() *refusal {
	if l == nil || l.sent == nil {
		return nil
	}
	l.sent.mu.Lock()
	defer l.sent.mu.Unlock()
	return l.sent.over
}

// meter returns a reader of a response body that passes the bytes on and finds the reported number of model
// tokens in them.
func (l *bill) meter(response *http.Response, body io.Reader) io.Reader {
	if l == nil || !l.tokens {
		return body
	}
	l.reader.Stream = strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
	return io.TeeReader(body, &l.reader)
}

// drains reports whether a response must be read to its end although the client has closed the connection,
// because its end reports the tokens used.
func (l *bill) drains() bool { return l != nil && l.tokens }

// ended notes that the response was read to its end, so that its report of the model tokens used is complete.
func (l *bill) ended() {
	if l != nil {
		l.whole = true
	}
}

// clientGone cancels, after drainTime, a request whose client has closed the connection and whose response must be
// read for the tokens used.
func (l *bill) clientGone(cancel func()) {
	time.AfterFunc(drainTime, cancel) // without effect once the request is over
}

// settle replaces the reservation of the request in the budget by its true cost, after a response with this
// HTTP status, or with status 0 without a response. Further calls do nothing.
func (l *bill) settle(status int) {
	if l == nil {
		return
	}
	l.once.Do(func() {
		defer l.broker.open.Done()
		used, estimated := budget.Count{Requests: 1}, false
		if l.tokens {
			used, estimated = l.used(status)
		}
		if l.sent != nil {
			l.sent.mu.Lock()
			used.Sent = l.sent.n
			l.sent.mu.Unlock()
		}
		_ = l.reserve.Settle(l.model, used, estimated) // on failure the reservation stays in the file
	})
}

// used returns the tokens that a request used, after a response with this HTTP status, and whether they are
// an estimate. A request that the server refused used only the tokens that the response reports. Otherwise a
// response that reported none, or was cut, used at least the reservation: the first event of a stream may
// report a single token. Where the request did not bound its output, it used no more than its bytes can have.
func (l *bill) used(status int) (used budget.Count, estimated bool) {
	used, ok := l.reader.Used()
	used.Requests = 1
	if ok && l.whole || status >= http.StatusBadRequest {
		used.Money = l.price.Cost(used)
		return used, false
	}
	worst := l.reserve.Worst()
	used.Input, used.Output = max(used.Input, worst.Input), max(used.Output, worst.Output)
	if l.open { // no token has less than two bytes, as the response has it
		used.Output = max(used.Output, l.reader.Size/2)
	}
	used.Tokens = used.Input + used.Output
	used.Cached, used.Written = 0, 0 // what was not reported may not have been cached
	used.Money = l.price.Worst(used)
	return used, true
}
