//go:build linux

package snapshottest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func travels(b snapshot.Backend) bool { return is[snapshot.Sender](b) && is[snapshot.Receiver](b) }

// A transfer is a backend that sends, and another one of its kind, in another place, that receives.
type transferPair struct {
	*workbench
	far  *workbench
	rand *rand.Rand
}

// sends sends a random tree, and then its changes by a random script, over a connection that breaks
// at a random byte.
func sends(x *workbench) {
	seed := rand.Uint64()
	x.Logf("seed %d", seed)
	j := &transferPair{x, newWorkbench(x.TB, x.subject, x.subject.Place), rand.New(rand.NewPCG(seed, 1))}
	script := treetest.NewWriter(seed, x.powers())
	root := treetest.Open(x, x.place.Tree.Path)
	x.must(script.Script(150).Play(root))
	x.capture("s1")
	s := as[snapshot.Sender](x.b)
	if err := s.Send(x.Context(), fullWriter{}, snapshot.Sending{ID: "s1"}); errors.Is(err, errs.ErrNotSupported) {
		x.clean()
		j.far.clean()
		return // the caller walks the tree then
	}
	if s.SendForm() != as[snapshot.Receiver](x.b).ReceiveForm() {
		x.Errorf("it sends the form %q and receives the form %q", s.SendForm(), as[snapshot.Receiver](x.b).ReceiveForm())
	}
	x.must(script.Script(80).Play(root))
	x.capture("s2")
	j.transfer("s1", "")
	j.transfer("s2", "s1")
	j.refuses()
	x.clean()
	j.far.clean()
}

// A fullWriter accepts no byte.
type fullWriter struct{}

var errFull = errors.New("the writer is full")

func (n fullWriter) Write([]byte) (int, error) { return 0, errFull }

// stream returns the stream of a snapshot.
func (j *transferPair) stream(s snapshot.Sending) []byte {
	j.Helper()
	var b bytes.Buffer
	j.must(as[snapshot.Sender](j.b).Send(j.Context(), &b, s))
	return b.Bytes()
}

var errBroken = errors.New("the connection broke")

// transfer receives a stream that breaks at a random byte, and then the whole stream.
func (j *transferPair) transfer(id, base snapshot.ID) {
	j.Helper()
	far := as[snapshot.Receiver](j.far.b)
	stream := j.stream(snapshot.Sending{ID: id, Base: base})
	at := j.rand.IntN(len(stream))
	_, err := far.Receive(j.Context(), io.MultiReader(bytes.NewReader(stream[:at]), brokenReader{}), id, base, j.place.Tree)
	if !errors.Is(err, errBroken) {
		j.Errorf("broken at byte %d of %d, Receive returns %v", at, len(stream), err)
	}
	_, err = j.far.b.Lookup(j.Context(), id)
	j.fails(err, errs.ErrNotFound, "looking up a partly received snapshot")
	j.must(j.far.b.Remove(j.Context(), id))
	s, err := far.Receive(j.Context(), bytes.NewReader(stream), id, base, j.place.Tree)
	j.must(err)
	if s.ID != id || s.Tree != j.place.Tree || !s.Frozen {
		j.Errorf("the received snapshot describes itself as %+v", s)
	}
	want, got := j.reach(j.snap(id)), j.far.reach(j.far.snap(id))
	defer want.Close()
	defer got.Close()
	treetest.Compare(j, want, got, treetest.Options{})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func (j *transferPair) refuses() {
	j.Helper()
	s, far := as[snapshot.Sender](j.b), as[snapshot.Receiver](j.far.b)
	j.fails(s.Send(j.Context(), io.Discard, snapshot.Sending{ID: "no"}), errs.ErrNotFound, "sending an unknown snapshot")
	j.fails(s.Send(j.Context(), io.Discard, snapshot.Sending{ID: "s2", Base: "no"}), errs.ErrNotFound, "sending on an unknown base")
	if err := s.Send(j.Context(), fullWriter{}, snapshot.Sending{ID: "s1"}); !errors.Is(err, errFull) {
		j.Errorf("sending to a full writer returns %v", err)
	}
	stream := j.stream(snapshot.Sending{ID: "s2", Base: "s1"})
	receive := func(b []byte, id, base snapshot.ID) error {
		_, err := far.Receive(j.Context(), bytes.NewReader(b), id, base, j.place.Tree)
		return err
	}
	j.fails(receive(stream, "s1", "s1"), errs.ErrExists, "receiving under an existing id")
	j.fails(receive(stream, "s3", "no"), errs.ErrNotFound, "receiving on an unknown base")
	j.fails(receive([]byte("no stream of any form"), "s3", ""), errs.ErrCorrupt, "receiving bytes that are no stream")
	j.fails(receive(stream[:len(stream)-1], "s3", "s1"), errs.ErrCorrupt, "receiving a stream without its end")
	_, err := j.far.b.Lookup(j.Context(), "s3")
	j.fails(err, errs.ErrNotFound, "looking up a snapshot that was refused")
}
