package engine_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/transfer"
)

// A transfer may take an hour: whoever collects meanwhile waits for none of it, and takes
// nothing that it refers to, though the sandbox goes that the base was captured for.
func TestCollectingWaitsForNoTransfer(t *testing.T) {
	treetest.NeedRoot(t)
	for name, pair := range pairings() {
		t.Run(name, func(t *testing.T) { collectedMeanwhile(t, pair) })
	}
}

func collectedMeanwhile(t *testing.T, pair machines) {
	near, far := pair(t)
	p := &pairing{near: near, far: far, rand: rand.New(rand.NewPCG(1, 2))}
	near.write("large", p.noise(1<<20))
	near.new("fix")
	far.write("here", "only")
	far.new("before")
	far.sound("before it begins") // which puts a fork by, so that the base serves again
	way, sent := p.send(t, transfer.SendRequest{Sandbox: "fix"})
	r, w := io.Pipe()
	received := make(chan error, 1)
	var got transfer.Received
	go func() {
		var err error
		got, err = p.receive(r)
		r.CloseWithError(err)
		received <- err
	}()
	half := len(way) / 2
	if _, err := w.Write(way[:half]); err != nil { // until it was read
		t.Fatal(err)
	}
	far.write("here", "later")
	far.new("after") // has another base, which is the newest of the tree
	collected := make(chan error, 1)
	go func() {
		if err := far.Remove(t.Context(), "before"); err != nil {
			t.Error(err)
		}
		_, err := far.Collect(t.Context())
		collected <- err
	}()
	select {
	case err := <-collected:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the transfer")
	}
	_, err := w.Write(way[half:])
	if rerr := <-received; err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	far.removeLater("fix")
	p.equal(t, got)
	if got.ID != sent.ID {
		t.Errorf("sent %+v, received %+v", sent, got)
	}
	if text := far.in("fix", "wc -c < large; cat here || echo none"); !strings.HasPrefix(text, "1048576\n") || !strings.HasSuffix(text, "none\n") {
		t.Errorf("it has %q", text)
	}
	changes, err := far.Compare.Diff(t.Context(), "fix", "", "")
	if err != nil {
		t.Fatal(err)
	}
	changes.Close()
	far.sound("collected meanwhile")
}

// A sandbox is made again where it could not be because of what is mounted, which errors of
// these kinds may come from; the read part of a stream cannot be read again.
func TestWhatEndsReceivingIsWhatIsTold(t *testing.T) {
	b := newBench(t)
	b.write("file", "text")
	b.new("fix")
	p := &pairing{near: b}
	way, _ := p.send(t, transfer.SendRequest{Sandbox: "fix"})
	for _, kind := range []error{errs.ErrDenied, errs.ErrNotSupported, errs.ErrNotFound, errs.ErrBusy} {
		cause := &errs.Error{Op: "reading", Kind: kind, Err: errBroken}
		req := b.request()
		req.Name = "came"
		_, err := transfer.New(b.Engine).Receive(t.Context(), io.MultiReader(bytes.NewReader(way[:len(way)-40]), failing{cause}), transfer.ReceiveRequest{Request: req})
		if !errors.Is(err, errBroken) || !errors.Is(errs.KindOf(err), kind) || strings.Contains(err.Error(), "mounted") {
			t.Errorf("the cause %v is told as %v, of the kind %v", cause, err, errs.KindOf(err))
		}
		b.sound("after what could not be read")
	}
}
