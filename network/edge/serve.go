//go:build linux

package edge

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/network"
)

// The descriptors that a process which serves one sandbox is started with.
const (
	TUN     = 3
	Starter = 4
)

// countEvery is how often the starter hears what was counted, where that has changed.
const countEvery = time.Second

// Serve is the whole life of a process at the edge of one sandbox's network. Its
// starter says which rules hold, at first and again, and hears every decision, as
// [network.Message]. Serve answers when the starter is gone, or says no more and
// has heard how everything ended. It bounds the memory of the process.
func Serve(ctx context.Context) error {
	tun := os.NewFile(TUN, "tun")
	s := server{fdsock.FromFD(Starter)}
	o, err := s.options()
	err = errors.Join(err, limitMemory())
	if err != nil {
		return errors.Join(err, tun.Close())
	}
	o.Event = func(ev network.Event) {
		_ = s.say(network.Message{Event: &ev}) // a starter that is gone needs none
	}
	o.Ready = func() error { return s.say(network.Message{}) }
	e, err := New(tun, o)
	err = errors.Join(err, tun.Close())
	if err != nil {
		return errors.Join(err, s.say(network.Message{Failed: err.Error()}))
	}
	stop := context.AfterFunc(ctx, func() { _ = s.starter.Shutdown() }) // it may have gone
	defer stop()
	ended := s.counting(e)
	for err == nil {
		var m network.Message
		if m, err = s.next(); err == nil && m.Rules != nil {
			var rules network.Rules
			if rules, err = network.Parse(*m.Rules); err == nil {
				e.Allow(rules)
			}
		}
	}
	err = e.Close()
	ended()
	return err
}

type server struct{ starter *fdsock.Conn }

func (s server) say(m network.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.starter.Send(text)
}

// options hears what an edge begins with, up to the rules.
func (s server) options() (o Options, err error) {
	for {
		m, err := s.next()
		if err != nil {
			return o, err
		}
		if m.Names != nil {
			o.Names, o.LastName = m.Names, m.LastName
		}
		if m.Counters != nil {
			o.Counters = *m.Counters
		}
		if m.Rules != nil {
			o.Rules, err = network.Parse(*m.Rules)
			return o, err
		}
	}
}

// next waits for a message.
func (s server) next() (m network.Message, err error) {
	text, files, err := s.starter.Receive()
	for _, f := range files {
		f.Close()
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// counting tells the starter what was counted, until ended is called, which tells the last.
func (s server) counting(e *Edge) (ended func()) {
	var told network.Counters
	tell := func() {
		if c := e.Counters(); !reflect.DeepEqual(c, told) {
			told = c
			_ = s.say(network.Message{Counters: &c}) // a starter that is gone needs none
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
