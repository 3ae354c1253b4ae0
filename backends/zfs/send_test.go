//go:build vm

package zfs_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// sent is what is sent of a snapshot.
func sent(t *testing.T, b *zfs.Backend, s snapshot.Sending) []byte {
	t.Helper()
	var way bytes.Buffer
	must(t, b.Send(t.Context(), &way, s))
	return way.Bytes()
}

// equal compares a snapshot of one backend with that of another.
func equal(t *testing.T, near, far *zfs.Backend, id snapshot.ID) {
	t.Helper()
	want, err := near.Lookup(t.Context(), id)
	must(t, err)
	got, err := far.Lookup(t.Context(), id)
	must(t, err)
	a, err := os.Open(want.View.Path)
	must(t, err)
	defer a.Close() // what is open cannot be swept
	b, err := os.Open(got.View.Path)
	must(t, err)
	defer b.Close()
	treetest.Compare(t, a, b, treetest.Options{})
}

// emptied removes and sweeps all.
func emptied(t *testing.T, b *zfs.Backend) {
	t.Helper()
	ids, forks, err := b.List(t.Context())
	must(t, err)
	for _, id := range forks {
		must(t, b.RemoveFork(t.Context(), id))
	}
	for _, id := range ids {
		must(t, b.Remove(t.Context(), id))
	}
	must(t, b.Sweep(t.Context()))
}

// TestWhatBreaksOffBetweenTwoPoolsIsGoneOnWith, wherever it breaks, and is equal then: as
// often as SNAPFS_SEND_ROUNDS says.
func TestWhatBreaksOffBetweenTwoPoolsIsGoneOnWith(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("SNAPFS_SEND_ROUNDS"))
	if err != nil {
		rounds = 3
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	p := place(t)
	_, _, there := ofFiles(t, "")
	near, far := opened(t, p), opened(t, there)
	script := treetest.NewWriter(seed, treetest.Powers{Root: true, NoExchange: true})
	for _, id := range []snapshot.ID{"s1", "s2"} {
		must(t, script.Script(120).Play(treetest.Open(t, p.Tree.Path)))
		_, err := near.Capture(t.Context(), p.Tree, id)
		must(t, err)
	}
	broke, resumed := 0, 0
	for range rounds {
		for _, s := range []snapshot.Sending{{ID: "s1"}, {ID: "s2", Base: "s1"}} {
			for breaks := 1 + random.IntN(2); breaks > 0; breaks-- {
				way := sent(t, near, s)
				part := bytes.NewReader(way[:random.IntN(len(way))])
				if _, err := far.Receive(t.Context(), io.MultiReader(part, broken{}), s.ID, s.Base, there.Tree); !errors.Is(err, errBroken) {
					t.Fatalf("a broken way gives %v", err)
				}
				broke++
				s.Resume, err = far.Resumable(t.Context(), s.ID)
				if must(t, err); s.Resume != "" {
					resumed++
				}
			}
			_, err = far.Receive(t.Context(), bytes.NewReader(sent(t, near, s)), s.ID, s.Base, there.Tree)
			must(t, err)
			equal(t, near, far, s.ID)
		}
		emptied(t, far)
	}
	if t.Logf("%d rounds: the way broke %d times, and %d times what had come was gone on with", rounds, broke, resumed); resumed == 0 {
		t.Error("nothing was gone on with")
	}
	emptied(t, near)
}

var errBroken = errors.New("the way broke")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// TestWhatWasSentComesBackAsADifference, to the snapshot that was captured here.
func TestWhatWasSentComesBackAsADifference(t *testing.T) {
	p := place(t)
	_, _, there := ofFiles(t, "")
	near, far := opened(t, p), opened(t, there)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("real"), 0o600))
	_, err := near.Capture(t.Context(), p.Tree, "s1")
	must(t, err)
	_, err = far.Receive(t.Context(), bytes.NewReader(sent(t, near, snapshot.Sending{ID: "s1"})), "s1", "", there.Tree)
	must(t, err)
	f, err := far.Fork(t.Context(), "s1", "f1")
	must(t, err)
	reads(t, f.View.Path+"/file", "real")
	must(t, os.WriteFile(f.View.Path+"/file", []byte("done"), 0o600))
	_, err = far.Seal(t.Context(), "f1", "s2", snapshot.Idle)
	must(t, err)
	_, err = near.Receive(t.Context(), bytes.NewReader(sent(t, far, snapshot.Sending{ID: "s2", Base: "s1"})), "s2", "s1", p.Tree)
	must(t, err)
	equal(t, far, near, "s2")
	f, err = near.Fork(t.Context(), "s2", "f2")
	must(t, err)
	reads(t, f.View.Path+"/file", "done")
	emptied(t, near)
	emptied(t, far)
	reads(t, p.Tree.Path+"/file", "real")
}

// TestAStreamBringsNoProperties: one that has any is refused, and no other takes effect
// but in a dataset that is neither mounted nor anybody's.
func TestAStreamBringsNoProperties(t *testing.T) {
	p := place(t)
	_, _, there := ofFiles(t, "")
	near, far := opened(t, p), opened(t, there)
	tree := of(t, p)
	sh(t, "set", "snapfs:mark=theirs", "setuid=off", tree)
	_, err := near.Capture(t.Context(), p.Tree, "s1")
	must(t, err)
	name := sh(t, "list", "-H", "-t", "snapshot", "-o", "name", tree)
	for _, options := range []string{"-p", "-R", "-w", "-c", "-b"} {
		way, err := run.Output(t.Context(), "zfs", "send", options, name)
		must(t, err)
		_, err = far.Receive(t.Context(), bytes.NewReader(way), "s1", "", there.Tree)
		if !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("what zfs send %s writes gives %v", options, err)
		}
	}
	if ids, _, err := far.List(t.Context()); len(ids) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", ids, err)
	}
	way := sent(t, near, snapshot.Sending{ID: "s1"})
	_, err = far.Receive(t.Context(), bytes.NewReader(way), "s1", "", there.Tree)
	must(t, err)
	in := strings.Fields(sh(t, "list", "-H", "-r", "-o", "name", of(t, there)))
	fork := in[len(in)-1]
	got := sh(t, "get", "-H", "-o", "property,value,source", "mounted,mountpoint,canmount,setuid,snapfs:mark", fork)
	want := "mounted\tno\t-\nmountpoint\tlegacy\tlocal\ncanmount\toff\tlocal\nsetuid\ton\tdefault\nsnapfs:mark\t" +
		fork[strings.LastIndexByte(fork, '/')+1:] + "\tlocal"
	if got != want {
		t.Errorf("%s has\n%s\nwant\n%s", fork, got, want)
	}
	emptied(t, near)
	emptied(t, far)
}

// TestAnotherMachineIsSentNothingButWhatWasAsked: where it broke off names a snapshot.
func TestAnotherMachineIsSentNothingButWhatWasAsked(t *testing.T) {
	p := place(t)
	_, _, there := ofFiles(t, "")
	near, far := opened(t, p), opened(t, there)
	must(t, os.WriteFile(p.Tree.Path+"/file", bytes.Repeat([]byte("secret"), 100_000), 0o600))
	for _, id := range []snapshot.ID{"s1", "s2"} {
		_, err := near.Capture(t.Context(), p.Tree, id)
		must(t, err)
	}
	way := sent(t, near, snapshot.Sending{ID: "s1"})
	_, err := far.Receive(t.Context(), bytes.NewReader(way[:len(way)-1]), "s1", "", there.Tree)
	if !errors.Is(err, snapshot.ErrCorrupt) {
		t.Fatalf("a stream that is cut off gives %v", err)
	}
	token, err := far.Resumable(t.Context(), "s1")
	if must(t, err); token == "" {
		t.Fatal("nothing can be gone on with")
	}
	for _, s := range []snapshot.Sending{{ID: "s2", Resume: token}, {ID: "s2", Base: "s1", Resume: token}, {ID: "s1", Resume: token + "0"}, {ID: "s1", Resume: "-n"}} {
		var out bytes.Buffer
		if err := near.Send(t.Context(), &out, s); !errors.Is(err, snapshot.ErrNotSupported) || out.Len() > 0 {
			t.Errorf("%+v: %v, with %d bytes", s, err, out.Len())
		}
	}
	rest := sent(t, near, snapshot.Sending{ID: "s1", Resume: token})
	if len(rest) > len(way)/2 {
		t.Errorf("the rest of %d bytes is %d", len(way), len(rest))
	}
	if _, err := far.Receive(t.Context(), bytes.NewReader(rest), "s2", "", there.Tree); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("the rest of another gives %v", err)
	}
	emptied(t, near)
	emptied(t, far) // what was half received goes as well
}
