//go:build linux

package snapshottest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/sendstream"
	"github.com/snapfs/snapfs/internal/treetest"
)

// sends is a test that every [snapshot.Sender] must pass: it sends a random tree, and then its changes by a
// random script, over a connection that breaks at a random byte. The whole stream must then arrive exactly.
func sends(x *workbench) {
	seed := rand.Uint64()
	x.Logf("seed %d", seed)
	s := as[snapshot.Sender](x.b)
	if s.SendForm() != snapshot.FormCommands {
		x.Fatalf("the suite cannot read the form %q", s.SendForm())
	}
	t := &transfer{x, newWorkbench(x.TB, x.subject, x.subject.Place), rand.New(rand.NewPCG(seed, 1))}
	script := treetest.NewWriter(seed, x.powers())
	root := treetest.Open(x, x.place.Tree.Path)
	x.must(script.Script(150).Play(root))
	x.capture("s1")
	if err := s.Send(x.Context(), fullWriter{}, snapshot.Sending{ID: "s1"}); errors.Is(err, errs.ErrNotSupported) {
		x.clean()
		t.far.clean()
		return // the caller walks the tree then
	}
	x.must(script.Script(80).Play(root))
	x.capture("s2")
	t.arrives("s1", "")
	t.arrives("s2", "s1")
	t.refuses()
	x.clean()
	t.far.clean()
}

// A transfer is a backend that sends snapshots as streams, with its workbench, and a second backend
// of its kind, far, that receives these streams in a tree of its own.
type transfer struct {
	*workbench
	far  *workbench
	rand *rand.Rand
}

// A fullWriter is an io.Writer that accepts no byte, like a full disk. Tests give it to a backend's Send.
type fullWriter struct{}

var errFull = errors.New("the writer is full")

func (n fullWriter) Write([]byte) (int, error) { return 0, errFull }

// stream returns the bytes that the backend under test writes to send the snapshot or difference s.
func (t *transfer) stream(s snapshot.Sending) []byte {
	t.Helper()
	var b bytes.Buffer
	t.must(as[snapshot.Sender](t.b).Send(t.Context(), &b, s))
	return b.Bytes()
}

var errBroken = errors.New("the connection broke")

// begin creates the directory name in the receiving tree and returns it open, with the content of the
// snapshot base, or empty if base is "". It is closed when the test ends.
func (t *transfer) begin(name string, base snapshot.ID) *os.File {
	t.Helper()
	dir := filepath.Join(t.far.place.Tree.Path, name)
	t.must(os.Mkdir(dir, 0o755))
	root := treetest.Open(t, dir)
	if base != "" {
		t.must(apply(t, root, bytes.NewReader(t.stream(snapshot.Sending{ID: base})), ""))
	}
	return root
}

func apply(t *transfer, root *os.File, r io.Reader, base snapshot.ID) error {
	return sendstream.Apply(t.Context(), root, r, sendstream.Options{OnBase: base != ""})
}

// arrives checks that a stream of the snapshot id that breaks at a random byte is rejected, and that the
// whole stream produces the snapshot's tree.
func (t *transfer) arrives(id, base snapshot.ID) {
	t.Helper()
	stream := t.stream(snapshot.Sending{ID: id, Base: base})
	at := t.rand.IntN(len(stream))
	err := apply(t, t.begin("broken-"+string(id), base), io.MultiReader(bytes.NewReader(stream[:at]), brokenReader{}), base)
	if !errors.Is(err, errBroken) {
		t.Errorf("a stream broken at byte %d of %d is applied with %v", at, len(stream), err)
	}
	got := t.begin("whole-"+string(id), base)
	t.must(apply(t, got, bytes.NewReader(stream), base))
	want := t.reach(t.snap(id))
	defer want.Close()
	treetest.Compare(t, want, got, treetest.Options{})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func (t *transfer) refuses() {
	t.Helper()
	s := as[snapshot.Sender](t.b)
	t.fails(s.Send(t.Context(), io.Discard, snapshot.Sending{ID: "no"}), errs.ErrNotFound, "sending an unknown snapshot")
	t.fails(s.Send(t.Context(), io.Discard, snapshot.Sending{ID: "s2", Base: "no"}), errs.ErrNotFound, "sending on an unknown base")
	if err := s.Send(t.Context(), fullWriter{}, snapshot.Sending{ID: "s1"}); !errors.Is(err, errFull) {
		t.Errorf("sending to a full writer returns %v", err)
	}
	stream := t.stream(snapshot.Sending{ID: "s2", Base: "s1"})
	t.fails(apply(t, t.begin("cut", "s1"), bytes.NewReader(stream[:len(stream)-1]), "s1"), errs.ErrCorrupt, "applying a stream without its end")
}
