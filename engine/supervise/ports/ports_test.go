package ports

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network/forward"
)

// TestAProxyOpensABoundedNumberOfPorts: a person is not bounded by it. Cost: ten milliseconds.
func TestAProxyOpensABoundedNumberOfPorts(t *testing.T) {
	in := &Forwards{name: "s", open: map[uint16]*forward.Forwarder{}, proxied: map[uint16]bool{}}
	defer func() {
		if err := in.Close(); err != nil || len(in.proxied) != 0 {
			t.Error(err, in.proxied)
		}
	}()
	open := func(port uint16, proxy bool) {
		t.Helper()
		if err := in.Add(port, 0, proxy); err != nil {
			t.Fatal(err)
		}
	}
	full := func(port uint16) {
		t.Helper()
		if err := in.Add(port, 0, true); !errors.Is(err, errs.ErrNoSpace) || len(errs.HintsOf(err)) == 0 {
			t.Errorf("port %d for a proxy: %v", port, err)
		}
	}
	open(9999, false)
	for port := range uint16(MaxProxied) {
		open(port+1, true)
	}
	full(1000)
	for _, port := range []uint16{1, 9999} { // these are open
		open(port, true)
	}
	open(1000, false)
	open(1, false) // from now on it is a person's
	open(1001, true)
	full(1002)
	if err := in.Remove(1001); err != nil {
		t.Error(err)
	}
	open(1002, true)
	full(1003)
}
