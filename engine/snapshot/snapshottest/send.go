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

// A journey is a backend that sends and another of its kind, elsewhere, that receives.
type journey struct {
	*workbench
	far  *workbench
	rand *rand.Rand
}

// sends sends a random tree, and then what a random script made of it, to another
// place, over a way that breaks.
func sends(x *workbench) {
	seed := rand.Uint64()
	x.Logf("seed %d", seed)
	j := &journey{x, newWorkbench(x.TB, x.subject, x.subject.Place), rand.New(rand.NewPCG(seed, 1))}
	script := treetest.NewWriter(seed, x.powers())
	root := treetest.Open(x, x.place.Tree.Path)
	x.must(script.Script(150).Play(root))
	x.capture("s1")
	s := as[snapshot.Sender](x.b)
	if err := s.Send(x.Context(), never{}, snapshot.Sending{ID: "s1"}); errors.Is(err, errs.ErrNotSupported) {
		x.clean()
		j.far.clean()
		return // the caller walks the tree then
	}
	if s.SendForm() != as[snapshot.Receiver](x.b).ReceiveForm() {
		x.Errorf("it sends %q and receives %q", s.SendForm(), as[snapshot.Receiver](x.b).ReceiveForm())
	}
	x.must(script.Script(80).Play(root))
	x.capture("s2")
	j.carry("s1", "")
	j.carry("s2", "s1")
	j.refuses()
	x.clean()
	j.far.clean()
}

// never is written to by who has begun a stream.
type never struct{}

var errFull = errors.New("no more is taken")

func (n never) Write([]byte) (int, error) { return 0, errFull }

// stream is what is sent of a snapshot.
func (j *journey) stream(s snapshot.Sending) []byte {
	j.Helper()
	var b bytes.Buffer
	j.must(as[snapshot.Sender](j.b).Send(j.Context(), &b, s))
	return b.Bytes()
}

var errBroken = errors.New("the way broke")

// carry breaks the way somewhere, and then carries a snapshot over the rest of it.
func (j *journey) carry(id, base snapshot.ID) {
	j.Helper()
	far := as[snapshot.Receiver](j.far.b)
	stream := j.stream(snapshot.Sending{ID: id, Base: base})
	at := j.rand.IntN(len(stream))
	_, err := far.Receive(j.Context(), io.MultiReader(bytes.NewReader(stream[:at]), failing{}), id, base, j.place.Tree)
	if !errors.Is(err, errBroken) {
		j.Errorf("broken at byte %d of %d, receiving gives %v", at, len(stream), err)
	}
	_, err = j.far.b.Lookup(j.Context(), id)
	j.fails(err, errs.ErrNotFound, "looking up what came in part")
	j.must(j.far.b.Remove(j.Context(), id))
	s, err := far.Receive(j.Context(), bytes.NewReader(stream), id, base, j.place.Tree)
	j.must(err)
	if s.ID != id || s.Tree != j.place.Tree || !s.Frozen {
		j.Errorf("what was received describes itself as %+v", s)
	}
	want, got := j.reach(j.snap(id)), j.far.reach(j.far.snap(id))
	defer want.Close()
	defer got.Close()
	treetest.Compare(j, want, got, treetest.Options{})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func (j *journey) refuses() {
	j.Helper()
	s, far := as[snapshot.Sender](j.b), as[snapshot.Receiver](j.far.b)
	j.fails(s.Send(j.Context(), io.Discard, snapshot.Sending{ID: "no"}), errs.ErrNotFound, "sending what is not there")
	j.fails(s.Send(j.Context(), io.Discard, snapshot.Sending{ID: "s2", Base: "no"}), errs.ErrNotFound, "sending on a base that is not there")
	if err := s.Send(j.Context(), never{}, snapshot.Sending{ID: "s1"}); !errors.Is(err, errFull) {
		j.Errorf("sending to who takes nothing gives %v", err)
	}
	stream := j.stream(snapshot.Sending{ID: "s2", Base: "s1"})
	receive := func(b []byte, id, base snapshot.ID) error {
		_, err := far.Receive(j.Context(), bytes.NewReader(b), id, base, j.place.Tree)
		return err
	}
	j.fails(receive(stream, "s1", "s1"), errs.ErrExists, "receiving to an id that is taken")
	j.fails(receive(stream, "s3", "no"), errs.ErrNotFound, "receiving on a base that is not there")
	j.fails(receive([]byte("no stream of any form"), "s3", ""), errs.ErrCorrupt, "receiving what is no stream")
	j.fails(receive(stream[:len(stream)-1], "s3", "s1"), errs.ErrCorrupt, "receiving a stream without its end")
	_, err := j.far.b.Lookup(j.Context(), "s3")
	j.fails(err, errs.ErrNotFound, "looking up what was not received")
}
