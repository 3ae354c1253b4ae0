package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/internal/fingerprint"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
	"github.com/snapfs/snapfs/network/placeholder"
)

// Options configure the [Broker] of one sandbox: its secrets, its network rules, and the function that gets
// each decision.
type Options struct {
	// Config has the secrets without their values, and Values their values, in the same order.
	Config network.BrokerConfig
	Values [][]byte
	// Labels recognise the content of labelled files, which no request may have; nil for none.
	Labels *fingerprint.Set
	// Rules returns the current network rules.
	Rules func() network.Rules
	// Event is called with each decision. It must not block.
	Event func(network.Event)
	// Roots are the certificates that servers' certificates are verified with; nil means those of this host.
	Roots *x509.CertPool
}

// A Broker reads the HTTP requests of one sandbox in its proxy, inserts secrets into them and counts its
// budget. Its methods are safe for concurrent use.
type Broker struct {
	options   Options
	authority *authority
	secrets   []*secret
	pairs     []pair         // the forms of the secrets and what replaces them; see pairsOf
	ledger    *budget.Ledger // nil without a budget
	metered   []string       // servers whose requests cost tokens, as those of the names below them
	open      sync.WaitGroup // requests with a reservation
	pace      pace
	memory    bodyMemory    // of the held bodies
	searches  chan struct{} // gets a value for each search for labelled content
	ctx       context.Context
	cancel    context.CancelFunc
}

// New returns a broker with a new certificate authority, and a new placeholder for each secret that has none.
// It opens the budget's ledger if the options name one.
func New(o Options) (*Broker, error) {
	if len(o.Values) != len(o.Config.Secrets) {
		return nil, fmt.Errorf("%d secrets and %d values", len(o.Config.Secrets), len(o.Values))
	}
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	b := &Broker{options: o, authority: a, memory: bodyMemory{most: maxHeld}, searches: make(chan struct{}, maxSearches)}
	for i, s := range o.Config.Secrets {
		one, err := newSecret(s, o.Values[i])
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		b.secrets = append(b.secrets, one)
	}
	b.pairs = pairsOf(b.secrets)
	if o.Config.Ledger != "" {
		if b.ledger, err = budget.Open(o.Config.Ledger); err != nil {
			return nil, err
		}
		b.metered = append(budget.Providers(), o.Config.Metered...)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close waits until the cost of every request is known, and closes the budget's ledger. The connections must
// be closed before.
func (b *Broker) Close() error {
	b.cancel()
	b.open.Wait()
	if b.ledger == nil {
		return nil
	}
	return b.ledger.Close()
}

// Public returns the data about the broker that may leave the proxy: the certificate that the sandbox must
// trust, the placeholders that stand for secrets inside, and the prints, keyed digests by which files with a
// secret are found.
func (b *Broker) Public() *network.BrokerPublic {
	p := &network.BrokerPublic{CA: b.authority.pem(), Placeholders: map[string]string{}, Prints: []placeholder.Print{}}
	for _, s := range b.secrets {
		p.Placeholders[s.Name] = s.Placeholder
		p.Prints = append(p.Prints, placeholder.Prints(s.Name, s.value)...)
		if s.aws != nil && s.aws.SessionToken != "" {
			p.Prints = append(p.Prints, placeholder.Prints(s.Name, []byte(s.aws.SessionToken))...)
		}
	}
	return p
}

// Takes reports whether the proxy must read the HTTP requests of the sandbox to name on port: a network rule
// allows only some methods there, a budget counts them, a secret may be inserted, or labelled files may not leave.
func (b *Broker) Takes(name string, port uint16) bool {
	return network.Fold(name) != "" && (b.Labelled() || b.Names(name, port))
}

// Names reports whether a secret, a budget or a network rule with methods applies to the server name on port. Labels
// alone, for which the proxy searches the requests to every server, do not count; see [Broker.Takes].
func (b *Broker) Names(name string, port uint16) bool {
	name = network.Fold(name)
	return name != "" && (b.options.Rules().Reads(name, port) || b.meters(name) ||
		slices.ContainsFunc(b.secrets, func(s *secret) bool { return s.reaches(name, port) }))
}

// meters reports whether requests to the host name cost tokens of the sandbox's budget, on any port. They do
// for the names of metered servers and those below them.
func (b *Broker) meters(name string) bool {
	return b.ledger != nil && slices.ContainsFunc(b.metered, func(m string) bool { return name == m || strings.HasSuffix(name, "."+m) })
}

// A Target is the server to which a connection of the sandbox goes, and how the broker connects to it. The
// proxy passes it to [Broker.Serve].
type Target struct {
	Name string
	Port uint16
	// Rule is the network rule that allowed the connection. With Once a person has allowed only this connection, and Rule
	// is the one that would allow it: then the requests on it need no rule.
	Rule string
	Once bool
	// ID is the connection in events.
	ID uint64
	// At is the port of the base URL (see [Broker.Base]) by which the connection came, or 0 if it was made to Name.
	At uint16
	// First is a connection to the server, which Serve closes. Dial makes another one.
	First net.Conn
	Dial  func(ctx context.Context) (net.Conn, error)
}

// Serve reads the requests on inside, a connection from the sandbox, and sends them to the server to, until
// the connection ends. It closes inside.
func (b *Broker) Serve(ctx context.Context, inside net.Conn, to Target) error {
	to.Name = network.Fold(to.Name)
	c := &exchange{broker: b, to: to}
	if to.At != 0 {
		if c.base = b.baseAt(to.At); c.base == nil {
			return errors.Join(errors.New("no base URL has this port"), inside.Close())
		}
	}
	defer c.close()
	if err := c.serve(ctx, inside); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
