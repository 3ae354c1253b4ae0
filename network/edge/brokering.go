//go:build linux

package edge

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fingerprint"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/broker"
)

// A brokering holds the secrets and options for reading the sandbox's HTTP requests, as the supervisor sent
// them, until the proxy is made and takes them.
type brokering struct {
	config *network.BrokerConfig
	values [][]byte
	labels *fingerprint.Set     // of labelled files, or nil
	edge   atomic.Pointer[Edge] // once it exists
}

// maxValue is how many bytes of a secret's value the proxy reads at most from its descriptor, which bounds
// its memory. Package broker refuses every secret of more than 16 KiB, and so one that is cut off here.
const maxValue = 64 << 10

// newBrokering reads the values of the sandbox's secrets from files: one descriptor for each of c.Secrets, in their
// order, and one more with the fingerprints of labelled files if c.Labels is set. The caller closes the files. Before it
// reads, newBrokering forbids core files, and forbids other processes of this user to read the memory of this one.
func newBrokering(c *network.BrokerConfig, files []*os.File) (*brokering, error) {
	if err := hideMemory(); err != nil {
		return nil, err
	}
	b := &brokering{config: c}
	if c.Labels && len(files) > 0 {
		last := len(files) - 1
		text, err := io.ReadAll(files[last])
		if err == nil {
			b.labels, err = fingerprint.Load(text)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the fingerprints of labelled files: %w", err)
		}
		files = files[:last]
	}
	if len(files) != len(c.Secrets) || c.Labels != (b.labels != nil) {
		return nil, fmt.Errorf("%d secrets and %d descriptors", len(c.Secrets), len(files))
	}
	for i, f := range files {
		value, err := io.ReadAll(io.LimitReader(f, maxValue))
		if err != nil {
			return nil, fmt.Errorf("reading the secret %s: %w", c.Secrets[i].Name, err)
		}
		b.values = append(b.values, value)
	}
	return b, nil
}

// hideMemory makes the memory of this proxy process, which holds the sandbox's secrets, unreadable for other
// processes without privileges, and for core files.
func hideMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
}

// broker creates, from b, the broker that reads the sandbox's HTTP requests, and adds it to the options o of
// the proxy.
func (s server) broker(o *Options, b *brokering) (err error) {
	rules := o.Rules
	o.Broker, err = broker.New(broker.Options{
		Config: *b.config, Values: b.values, Labels: b.labels,
		Rules: func() network.Rules {
			if e := b.edge.Load(); e != nil {
				return e.Rules()
			}
			return rules
		},
		Event: func(ev network.Event) {
			if e := b.edge.Load(); e != nil {
				e.request(ev)
			}
		},
	})
	return err
}

// public returns the data that the supervisor, the process on the host that manages the sandbox, needs about
// the broker, which reads the sandbox's HTTP requests: the certificate to trust, the placeholders, and the
// fingerprints of secrets, but no secret. It is nil if the proxy reads no requests.
func (o *Options) public() *network.BrokerPublic {
	if o.Broker == nil {
		return nil
	}
	return o.Broker.Public()
}
