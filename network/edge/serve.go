package edge

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/network"
)

// The descriptors that a process which serves one sandbox is started with.
const (
	TUN     = 3
	Starter = 4
)

// Serve is the whole life of a process at the edge of one sandbox's network. Its
// starter says which rules hold, at first and again, and hears every decision, as
// [network.Message]. Serve answers when the starter is gone, or says no more and
// has heard how everything ended.
func Serve(ctx context.Context) error {
	tun := os.NewFile(TUN, "tun")
	s := server{kernel.PacketOf(Starter)}
	rules, err := s.next()
	if err != nil {
		return errors.Join(err, tun.Close())
	}
	e, err := New(tun, Options{Rules: rules, Event: func(ev network.Event) {
		_ = s.say(network.Message{Event: &ev}) // a starter that is gone needs none
	}})
	err = errors.Join(err, tun.Close())
	if err != nil {
		return errors.Join(err, s.say(network.Message{Failed: err.Error()}))
	}
	stop := context.AfterFunc(ctx, func() { _ = s.starter.Shutdown() }) // it may have gone
	defer stop()
	for err = s.say(network.Message{}); err == nil; {
		if rules, err = s.next(); err == nil {
			e.Allow(rules)
		}
	}
	return e.Close()
}

type server struct{ starter *kernel.Packet }

func (s server) say(m network.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.starter.Send(text)
}

// next waits for rules.
func (s server) next() (network.Rules, error) {
	text, files, err := s.starter.Receive()
	for _, f := range files {
		f.Close()
	}
	var m network.Message
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err == nil && m.Rules == nil {
		err = errors.New("the starter says nothing that is known here")
	}
	if err != nil {
		return network.Rules{}, err
	}
	return network.Parse(*m.Rules)
}
