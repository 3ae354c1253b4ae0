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

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
	"github.com/snapfs/snapfs/network/placeholder"
)

// Options configure a broker.
type Options struct {
	// Config has the secrets without their values, and Values their values, in the same order.
	Config network.BrokerConfig
	Values [][]byte
	// Rules returns the current network rules.
	Rules func() network.Rules
	// Event is called with each decision. It must not block.
	Event func(network.Event)
	// Roots are the certificates that servers' certificates are verified with; nil means those of this host.
	Roots *x509.CertPool
}

// A Broker reads requests for one sandbox. Its methods are safe for concurrent use.
type Broker struct {
	options   Options
	authority *authority
	secrets   []*secret
	ledger    *budget.Ledger // nil without a budget
	metered   []string       // servers whose requests cost tokens, as those of the names below them
	open      sync.WaitGroup // requests with a reservation
	ctx       context.Context
	cancel    context.CancelFunc
}

// New returns a broker with a new CA, and a new placeholder for each secret that has none.
func New(o Options) (*Broker, error) {
	if len(o.Values) != len(o.Config.Secrets) {
		return nil, fmt.Errorf("%d secrets and %d values", len(o.Config.Secrets), len(o.Values))
	}
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	b := &Broker{options: o, authority: a}
	for i, s := range o.Config.Secrets {
		one, err := newSecret(s, o.Values[i])
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
		b.secrets = append(b.secrets, one)
	}
	if o.Config.Ledger != "" {
		if b.ledger, err = budget.Open(o.Config.Ledger); err != nil {
			return nil, err
		}
		b.metered = append(budget.Providers(), o.Config.Metered...)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close waits until the usage of every request is known, and closes the ledger. The connections must be closed before.
func (b *Broker) Close() error {
	b.cancel()
	b.open.Wait()
	if b.ledger == nil {
		return nil
	}
	return b.ledger.Close()
}

// Public returns what others may know: the certificate of the CA, the placeholders, and the prints of the secrets.
func (b *Broker) Public() *network.BrokerPublic {
	p := &network.BrokerPublic{CA: b.authority.pem(), Placeholders: map[string]string{}, Prints: []placeholder.Print{}}
	for _, s := range b.secrets {
		p.Placeholders[s.Name] = s.Placeholder
		p.Prints = append(p.Prints, placeholder.Prints(s.Name, s.value)...)
	}
	return p
}

// Takes reports whether the broker must read the connections to name on port.
func (b *Broker) Takes(name string, port uint16) bool {
	name = network.Fold(name)
	if name == "" {
		return false
	}
	return b.options.Rules().Reads(name, port) || b.meters(name) ||
		slices.ContainsFunc(b.secrets, func(s *secret) bool { return s.reaches(name, port) })
}

// meters reports whether the requests to a name have a budget, on any port: those to a metered name and to names below
// it.
func (b *Broker) meters(name string) bool {
	return b.ledger != nil && slices.ContainsFunc(b.metered, func(m string) bool { return name == m || strings.HasSuffix(name, "."+m) })
}

// A Target is the server of one connection.
type Target struct {
	Name string
	Port uint16
	// Rule is the network rule that allowed the connection.
	Rule string
	// ID is the connection in events.
	ID uint64
	// First is a connection to the server, which Serve closes. Dial makes another one.
	First net.Conn
	Dial  func(ctx context.Context) (net.Conn, error)
}

// Serve reads the requests on a connection from inside until it ends, and closes it.
func (b *Broker) Serve(ctx context.Context, inside net.Conn, to Target) error {
	to.Name = network.Fold(to.Name)
	c := &exchange{broker: b, to: to}
	defer c.close()
	if err := c.serve(ctx, inside); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
