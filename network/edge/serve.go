//go:build linux

package edge

import (
	"context"
	"errors"
	"os"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/network"
)

// Numbers of the file descriptors with which the supervisor starts a proxy process: the TUN device, and the
// connection to the supervisor.
const (
	TUN        = 3
	Supervisor = 4
)

// countEvery is the interval at which the proxy reports changed traffic counters to the supervisor, the
// process that manages the sandbox.
const countEvery = time.Second

// Serve is the main function of the network proxy process of one sandbox. It receives the network rules from
// the supervisor, at first and whenever they change, and sends every decision, as [network.Message]. It
// returns when the supervisor has ended or has closed its side, after reporting the end of every connection.
// It limits the memory of the process.
func Serve(ctx context.Context) error {
	tun := os.NewFile(TUN, "tun")
	s := server{fdsock.FromFD(Supervisor)}
	o, brokered, err := s.options()
	err = errors.Join(err, limitMemory())
	if err != nil {
		return errors.Join(err, tun.Close())
	}
	if brokered != nil {
		if err = s.broker(&o, brokered); err != nil {
			return errors.Join(err, tun.Close(), s.send(network.Message{Failed: err.Error()}))
		}
	}
	o.Events = s.sendEvents
	o.Questions = func(all []network.Question) {
		_ = s.send(network.Message{Questions: &all}) // fails when the supervisor is gone
	}
	o.Ready = func() error { return s.send(network.Message{Public: o.public()}) }
	e, err := New(tun, o)
	if brokered != nil && err == nil {
		brokered.edge.Store(e)
	}
	err = errors.Join(err, tun.Close())
	if err != nil {
		return errors.Join(err, s.send(network.Message{Failed: err.Error()}))
	}
	stop := context.AfterFunc(ctx, func() { _ = s.supervisor.Shutdown() }) // fails when the supervisor is gone
	defer stop()
	ended := s.reportCounters(e)
	for err == nil {
		var m network.Message
		var files []*os.File
		m, files, err = s.next()
		fdsock.CloseAll(files)
		if err == nil && m.Rules != nil {
			var rules network.Rules
			if rules, err = network.Parse(*m.Rules); err == nil {
				e.Allow(rules)
			}
		}
		if err == nil && m.Answer != nil {
			err = e.Decide(*m.Answer)
		}
	}
	err = e.Close()
	if o.Broker != nil {
		err = errors.Join(err, o.Broker.Close())
	}
	ended()
	return err
}

type server struct{ supervisor *fdsock.Conn }

func (s server) send(m network.Message) error {
	text, err := exactjson.Encode(m)
	if err != nil {
		return err
	}
	return s.supervisor.Send(text)
}

// sendEvents sends events in one message, or in several if they are too long for one. It fails when the supervisor is
// gone.
func (s server) sendEvents(all []network.Event) {
	err := s.send(network.Message{Events: all})
	if half := len(all) / 2; half > 0 && errors.Is(err, unix.EMSGSIZE) {
		s.sendEvents(all[:half])
		s.sendEvents(all[half:])
	}
}

// options receives the supervisor's messages up to the first network rules, and returns them as the options
// of a proxy. b has the options for reading requests, or is nil if the proxy reads none.
func (s server) options() (o Options, b *brokering, err error) {
	for {
		m, files, err := s.next()
		if err == nil && m.Broker != nil {
			b, err = newBrokering(m.Broker, files)
		}
		fdsock.CloseAll(files)
		if err != nil {
			return o, nil, err
		}
		if m.Names != nil {
			o.Names, o.LastName = m.Names, m.LastName
		}
		if m.Counters != nil {
			o.Counters = *m.Counters
		}
		if m.Asking != nil {
			o.Asking = m.Asking
		}
		if m.Rules != nil {
			o.Rules, err = network.Parse(*m.Rules)
			return o, b, err
		}
	}
}

// next waits for the next message of the supervisor, such as new network rules, and decodes it. The caller
// closes the files that come with it.
func (s server) next() (m network.Message, files []*os.File, err error) {
	text, files, err := s.supervisor.Receive()
	if err == nil {
		err = exactjson.Decode(text, &m)
	}
	return m, files, err
}

// reportCounters sends the proxy's counts of connections and bytes to the process that supervises the
// sandbox, until ended is called, which sends the last ones.
func (s server) reportCounters(e *Edge) (ended func()) {
	var sent network.Counters
	tell := func() {
		if c := e.Counters(); !reflect.DeepEqual(c, sent) {
			sent = c
			_ = s.send(network.Message{Counters: &c}) // fails when the supervisor is gone
		}
	}
	over := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		each := time.NewTicker(countEvery)
		defer each.Stop()
		for {
			select {
			case <-each.C:
				tell()
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		work.Wait()
		tell()
	}
}
