// Package budget counts the requests, bytes, model tokens and money that one sandbox uses, and refuses
// requests beyond its limits.
//
// A [Ledger] reserves the greatest cost of a request before it is sent, and settles it by the usage that the
// provider reports ([Meter]). Reserved and settled together never exceed a limit, so that parallel requests
// cannot either. The ledger writes each step to a file, so that a proxy that was killed loses no reservation.
// A separate file has the limits, which may change while the ledger is open. A sandbox and its forks share the file of
// the ledger, so that together they use no more than one of them may.
//
// The package must not know secrets or rules, nor how requests are sent.
package budget

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/snapfs/snapfs/internal/units"
)

// A Count is an amount of each resource that a budget counts: requests, bytes, model tokens, and money. Used
// as limits, 0 means no limit.
type Count struct {
	// Requests are HTTP requests that the proxy reads, and Sent the bytes of their bodies.
	Requests int64 `json:"requests,omitempty"`
	Sent     int64 `json:"bytes_sent,omitempty"`
	// Input and Output are tokens of models, and Tokens both together.
	Input  int64 `json:"input_tokens,omitempty"`
	Output int64 `json:"output_tokens,omitempty"`
	Tokens int64 `json:"tokens,omitempty"`
	// Cached and Written are the parts of Input that the provider read from its cache and wrote to it; they have prices
	// of their own. They are no limits.
	Cached  int64 `json:"cached_tokens,omitempty"`
	Written int64 `json:"cache_written_tokens,omitempty"`
	// Money is what the tokens cost by the prices of the profile, in millionths of their currency.
	Money int64 `json:"money_millionths,omitempty"`
}

// Fields returns a pointer to each amount of c that can be a limit, with the name that it has in a profile, for
// reading and printing limits.
func (c *Count) Fields() []Field {
	return []Field{
		{"requests", &c.Requests},
		{"bytes-sent", &c.Sent},
		{"tokens", &c.Tokens},
		{"input-tokens", &c.Input},
		{"output-tokens", &c.Output},
		{moneyField, &c.Money},
	}
}

// A Field is one amount of a [Count], by pointer, with its name in a profile.
type Field struct {
	Name  string
	Value *int64
}

// moneyField is the name of the amount of money in a profile.
const moneyField = "money"

// FormatAmount formats n, an amount of the [Field] called name, for a person: money as "2.50", others as whole
// numbers.
func FormatAmount(name string, n int64) string {
	if name == moneyField {
		return units.FormatMoney(n)
	}
	return units.FormatCount(n)
}

// ParseAmount parses text as an amount of the [Field] called name: a sum of money, a size such as "10M" for
// bytes-sent, or else a whole number. Zero is an error, which matches units.ErrZero, because it would mean no limit.
func ParseAmount(name, text string) (int64, error) {
	switch name {
	case moneyField:
		n, err := units.ParseMoney(text)
		if err == nil && n == 0 {
			err = fmt.Errorf("amount %q: %w", text, units.ErrZero)
		}
		return n, err
	case "bytes-sent":
		return units.ParseSize(text)
	}
	return units.ParseCount(text)
}

// HasTokens reports whether c, used as the limits of a budget, limits the tokens of AI models or what they cost.
func (c Count) HasTokens() bool { return c.Tokens > 0 || c.Input > 0 || c.Output > 0 || c.Money > 0 }

func (c Count) plus(o Count) Count {
	return Count{
		c.Requests + o.Requests, c.Sent + o.Sent, c.Input + o.Input, c.Output + o.Output, c.Tokens + o.Tokens,
		c.Cached + o.Cached, c.Written + o.Written, c.Money + o.Money,
	}
}

func (c Count) minus(o Count) Count {
	return Count{
		c.Requests - o.Requests, c.Sent - o.Sent, c.Input - o.Input, c.Output - o.Output, c.Tokens - o.Tokens,
		c.Cached - o.Cached, c.Written - o.Written, c.Money - o.Money,
	}
}

// Names of the files of a budget in the sandbox's directory: the limits of network requests, and the log of
// the requests made.
const (
	limitsFile = "budget.json"
	ledgerFile = "budget.jsonl"
)

// A State is the state of a sandbox's budget at one moment: the limits, and the amounts used and reserved.
type State struct {
	Limits Count `json:"limits"`
	// Used is settled; Reserved belongs to requests that are not over.
	Used     Count `json:"used"`
	Reserved Count `json:"reserved"`
	// Estimated is the number of requests that were settled by their reservation: their responses reported no usage.
	Estimated int64 `json:"estimated"`
	// Models has the settled use of each AI model, by its name in the requests. Beyond [maxModels] names, all others
	// count as one, called otherModels.
	Models map[string]Count `json:"models,omitempty"`
	// Shared is set if other sandboxes count with the same ledger, from which this one was forked or which were forked
	// from it: then all amounts but the limits are those of all together.
	Shared bool `json:"shared,omitempty"`
	// Ledger is the identity of the ledger for other machines, or "" before its sandbox was sent to one ([Export]).
	Ledger string `json:"ledger,omitempty"`
	// Elsewhere is the part of Used that ledgers on other machines counted, by their identities, as far as streams
	// from there have said ([Import]). Models and Estimated are without it.
	Elsewhere map[string]Count `json:"elsewhere,omitempty"`
}

// maxModels is how many AI models a budget counts by their names, which the requests choose.
const maxModels = 32

// otherModels is the name under which a budget counts the models beyond the first [maxModels].
const otherModels = "other models"

// settle counts used, the cost of one request to the AI model called model, or of another request if model is "".
func (s *State) settle(model string, used Count, estimated bool) {
	s.Used = s.Used.plus(used)
	if estimated {
		s.Estimated++
	}
	if model == "" {
		return
	}
	if _, known := s.Models[model]; !known && len(s.Models) >= maxModels {
		model = otherModels
	}
	if s.Models == nil {
		s.Models = map[string]Count{}
	}
	s.Models[model] = s.Models[model].plus(used)
}

// A line is one line of the file that logs the cost of a sandbox's network requests, as JSON: the start or
// the end of a request, or a summary.
type line struct {
	// Compacted numbers a line that compacts the file. It is first, within the bytes of headSize.
	Compacted int64 `json:"compacted,omitempty"`
	// Format is the version that a program must know to count this line and those after it; 0 is the first.
	Format int `json:"format,omitempty"`
	// Total is a summary of everything before this line, except for Open, the requests that had not ended by then.
	Total *State `json:"total,omitempty"`
	Open  []line `json:"open,omitempty"`
	ID    int64  `json:"id,omitempty"`
	// By names the ledger that began the request, among those that share the file.
	By string `json:"by,omitempty"`
	// Reserve begins a request, or changes what is reserved for it; Settle ends it.
	Reserve   *Count `json:"reserve,omitempty"`
	Settle    *Count `json:"settle,omitempty"`
	Estimated bool   `json:"estimated,omitempty"`
	// Model is the AI model that a settled request was for, or "".
	Model string `json:"model,omitempty"`
	// Ledger gives this ledger its identity for other machines.
	Ledger string `json:"ledger,omitempty"`
	// Elsewhere has what ledgers on other machines have counted, by their identities.
	Elsewhere map[string]Count `json:"elsewhere,omitempty"`
}

// A Ledger is the open budget (limits and use of requests, bytes and model tokens) of one sandbox, in the
// sandbox's proxy. Its methods are safe for concurrent use. Only one process may have it open. Ledgers of other
// sandboxes may share its file ([Share]): then each counts what all of them use.
type Ledger struct {
	dir    string
	by     string     // its name in the lines of the file
	mu     sync.Mutex // guards the fields below
	limits Count
	tally  tally
	log    logFile
	newer  error // the file has a line that this program does not know how to count
}

// Read returns which requests, bytes and model tokens the sandbox with the directory dir may use and has
// used, also while its proxy counts them. It is zero for a sandbox without a budget.
func Read(dir string) (State, error) {
	var t tally
	text, info, err := readLog(dir)
	if err == nil {
		err = t.read(text)
	}
	if err != nil {
		return State{}, err
	}
	t.state.Shared = info != nil && isShared(info)
	t.state.Limits, err = readLimits(dir)
	return t.state, err
}

// Identity returns the identity of the ledger of the sandbox with the directory dir for other machines, or "" before the
// sandbox was sent to one ([Export]). It does not need the limits, whose file may be damaged.
func Identity(dir string) (string, error) {
	var t tally
	text, _, err := readLog(dir)
	if err == nil {
		err = t.read(text)
	}
	return t.state.Ledger, err
}

// SetLimits replaces the limits on requests, bytes and model tokens of the sandbox with the directory dir,
// also while its proxy counts with them.
func SetLimits(dir string, limits Count) error {
	text, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, limitsFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// HasLimits reports whether the use of requests, bytes and model tokens is counted for the sandbox with the
// directory dir: a file there has the limits.
func HasLimits(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, limitsFile))
	return err == nil
}

func readLimits(dir string) (c Count, err error) {
	text, err := os.ReadFile(filepath.Join(dir, limitsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// Limits returns the limits of the sandbox's budget, as the ledger last read them from their file.
func (l *Ledger) Limits() Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits
}

// A Reservation is the greatest cost of one request, set aside in the budget until the request is over. The
// caller calls Settle once.
type Reservation struct {
	ledger *Ledger
	id     int64
	count  Count
}

// An Exceeded says which limit of a sandbox's budget a network request may exceed, so that the proxy refuses
// it.
type Exceeded struct {
	// What names the limit, Limit is its value. Used is settled, Reserved belongs to open requests, and Asked to
	// this one.
	What                         string
	Limit, Used, Reserved, Asked int64
}

// TooLarge reports whether the request does not fit the limit even when nothing of it is used. A cost too large to
// count is negative, and fits no limit.
func (e *Exceeded) TooLarge() bool { return e.Asked < 0 || e.Asked > e.Limit }

// Spent reports whether the request would fit the unused limit, and has no room now even when all open requests are
// over and cost nothing.
func (e *Exceeded) Spent() bool { return !e.TooLarge() && e.Asked > e.Limit-e.Used }

// Why returns as text for a person why the proxy refused a request: by how much it would exceed which limit
// of the budget.
func (e *Exceeded) Why() string {
	text := func(n int64) string { return FormatAmount(e.What, n) }
	switch {
	case e.Asked < 0:
		return "the request is too large: the " + e.What + " that it needs cannot be counted"
	case e.TooLarge():
		return fmt.Sprintf("the request is too large for the budget %s of %s: %s needed", e.What, text(e.Limit), text(e.Asked))
	}
	return fmt.Sprintf("the budget %s of %s has no room for this request: %s used, %s reserved by open requests, %s needed", e.What, text(e.Limit), text(e.Used), text(e.Reserved), text(e.Asked))
}

// Reserve sets aside worst, the greatest cost of a request, in the budget. If that exceeds a limit, it
// returns the limit as an Exceeded; then, or with an error, it reserves nothing. Before it refuses, it reads
// the limits again, as they may have been changed.
func (l *Ledger) Reserve(worst Count) (r *Reservation, over *Exceeded, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.withFileLock(func() error {
		var err error
		if over, err = l.exceeded(worst, l.tally.state.Reserved); over != nil || err != nil {
			return err
		}
		r = &Reservation{l, l.tally.last + 1, worst}
		return l.write(line{ID: r.id, By: l.by, Reserve: &worst})
	})
	if over != nil || err != nil {
		return nil, over, err
	}
	return r, nil, nil
}

// exceeded returns a limit that a request with the cost asked would exceed while others have reserved so much, or nil.
// Before it returns one, it reads the limits again, as they may have been changed. The caller holds l.mu.
func (l *Ledger) exceeded(asked, reserved Count) (*Exceeded, error) {
	if l.tally.exceeded(l.limits, asked, reserved) == nil {
		return nil, nil //nolint:nilnil // it exceeds none
	}
	limits, err := readLimits(l.dir)
	if err != nil {
		return nil, err
	}
	l.limits = limits
	return l.tally.exceeded(l.limits, asked, reserved), nil
}

// exceeded returns a limit that a request with the cost asked would exceed while other requests have reserved so much,
// or nil. It prefers a limit that the request exceeds by itself. A negative amount, which an overflow produces, exceeds
// every limit.
func (t *tally) exceeded(limits, asked, reserved Count) (first *Exceeded) {
	used := t.state.Used
	for i, f := range limits.Fields() {
		e := &Exceeded{f.Name, *f.Value, *used.Fields()[i].Value, *reserved.Fields()[i].Value, *asked.Fields()[i].Value}
		if e.Asked >= 0 && (e.Limit == 0 || e.Asked == 0 || e.Asked <= e.Limit-e.Used-e.Reserved) {
			continue
		}
		if e.TooLarge() {
			return e
		}
		if first == nil {
			first = e
		}
	}
	return first
}

// Extend adds more to the reservation, for a body longer than announced, or returns the limit that this would
// exceed and adds nothing. The limit is checked for the whole request, of which more is a part. A file that no other
// ledger shares gets the addition only with Settle.
func (r *Reservation) Extend(more Count) (*Exceeded, error) {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var over *Exceeded
	err := l.withFileLock(func() error {
		whole := r.count.plus(more)
		asked := whole
		for i, f := range more.Fields() {
			if *f.Value == 0 {
				*asked.Fields()[i].Value = 0 // what is reserved already stays reserved
			}
		}
		var err error
		if over, err = l.exceeded(asked, l.tally.state.Reserved.minus(r.count)); over != nil || err != nil {
			return err
		}
		one := line{ID: r.id, By: l.by, Reserve: &whole}
		if !l.log.shared {
			l.tally.apply(one)
		} else if err := l.write(one); err != nil {
			return err
		}
		r.count = whole
		return nil
	})
	return over, err
}

// Worst returns the amounts that the budget has set aside for a network request: the greatest cost that it
// can have.
func (r *Reservation) Worst() Count { return r.count }

// Settle ends the reservation and counts used, the true cost of the request, for the AI model called model, which
// is "" if the request is for none. estimated is set if the cost is not known exactly.
func (r *Reservation) Settle(model string, used Count, estimated bool) error {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	one := line{ID: r.id, Settle: &used, Estimated: estimated, Model: model}
	err := l.withFileLock(func() error { return l.write(one) })
	if err != nil {
		l.tally.apply(one)
	}
	return err
}
