package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/workflow/transfer"
	"golang.org/x/sys/unix"
)

// A pairing is two machines, as far as sandboxes know: two state directories, and
// a workspace on a disk of its own each.
type pairing struct {
	near, far *bench
	rand      *rand.Rand
}

// machines makes the two.
type machines func(t *testing.T) (near, far *bench)

// wholeBtrfs is a bench whose workspace is a tree of its own, which the kernel sends.
func wholeBtrfs(t *testing.T) *bench {
	t.Helper()
	b := benchIn(t, treetest.Btrfs(t), treetest.Dir(t))
	b.workspace = filepath.Dir(b.workspace)
	return b
}

// pairings are the filesystems of the two.
func pairings() map[string]machines {
	part := func(t *testing.T, dir string) *bench { return benchIn(t, dir, treetest.Dir(t)) }
	whole := wholeBtrfs
	return map[string]machines{
		"two btrfs":            func(t *testing.T) (*bench, *bench) { return whole(t), whole(t) },
		"directories of btrfs": func(t *testing.T) (*bench, *bench) { return part(t, treetest.Btrfs(t)), part(t, treetest.Btrfs(t)) },
		"btrfs and overlay":    func(t *testing.T) (*bench, *bench) { return whole(t), part(t, treetest.Dir(t)) },
		"overlay and btrfs":    func(t *testing.T) (*bench, *bench) { return part(t, treetest.Dir(t)), whole(t) },
	}
}

// rounds is how often the way breaks: `SNAPFS_SEND_ROUNDS=50 go test ./engine -run Interrupted`.
func rounds(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("SNAPFS_SEND_ROUNDS"))
	if err != nil {
		return 5
	}
	return n
}

func TestWhatIsSentIsEqualHoweverOftenItIsInterrupted(t *testing.T) {
	treetest.NeedRoot(t)
	all := pairings()
	if !treetest.Long(t) { // the changes are found by a walk there, as from overlay to btrfs
		delete(all, "directories of btrfs")
	}
	for name, pair := range all {
		t.Run(name, func(t *testing.T) { interrupted(t, pair, treetest.Powers{Root: true, NoDirRename: true}) })
	}
}

// interrupted sends a random tree, and then what a sandbox made of it, over a way that
// breaks, and compares. Where the two are at odds is played again by SNAPFS_SEND_SEED.
func interrupted(t *testing.T, pair machines, powers treetest.Powers) {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("SNAPFS_SEND_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	near, far := pair(t)
	p := &pairing{near: near, far: far, rand: rand.New(rand.NewPCG(seed, 2))}
	script := treetest.NewWriter(seed, powers)
	if err := script.Script(120).Play(treetest.Open(t, near.workspace)); err != nil {
		t.Fatal(err)
	}
	far.write("here", "only")
	near.write("large", p.noise(3<<20))
	near.new("fix")
	near.in("fix", "echo one > made; mkdir -p d/e; ln made d/e/linked")
	p.broken(t, transfer.SendRequest{Sandbox: "fix"}, rounds(t))
	first := p.goneOn(t, transfer.SendRequest{Sandbox: "fix"}, rounds(t))
	far.removeLater("fix")
	if !first.New {
		t.Errorf("%+v: want a new sandbox", first)
	}
	p.equal(t, first)
	near.in("fix", "tail -c 2000000 large > larger; rm -r d; echo two > made; echo more > more; find . -xdev -type f -size +1k | head -3 | while read f; do mv \"$f\" moved; done; chmod 700 .")
	request := transfer.SendRequest{Sandbox: "fix"}
	if _, err := transfer.New(far.Engine).Forget(); err != nil { // what broke off before
		t.Fatal(err)
	}
	if has, err := transfer.New(far.Engine).Offers("fix"); err != nil || len(has) != 1 {
		t.Errorf("the other side has %v, %v", has, err)
	} else {
		request.Have = has
	}
	if near.frozen("fix") && far.frozen("fix") { // an overlay refuses what would part the names of a file
		p.broken(t, request, rounds(t))
		second := p.goneOn(t, request, rounds(t))
		if second.New {
			t.Errorf("%+v: want another state of the sandbox", second)
		}
		p.equal(t, second)
	}
}

// What the other side says to have, and has not, or of another stream, is sent.
func TestWhatTheOtherSideHasOtherwiseIsSentAgain(t *testing.T) {
	treetest.NeedRoot(t)
	for name, pair := range pairings() {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			p := &pairing{near: near, far: far, rand: rand.New(rand.NewPCG(1, 2))}
			near.write("large", p.noise(1<<20))
			near.new("fix")
			way, sent := p.send(t, transfer.SendRequest{Sandbox: "fix"})
			sum := strings.Repeat("00", 32)
			for _, have := range []string{
				sent.ID + "::300000:" + sum, sent.ID + "::300000000000:" + sum, sent.ID + ":abc-s1:300000:" + sum, "x::1:" + sum,
				sent.ID + "::0:" + sum, sent.ID + "::300000:", "::::", "",
			} {
				again, sent := p.send(t, transfer.SendRequest{Sandbox: "fix", State: sent.State, Have: []string{have}})
				if sent.From != 0 || !bytes.Equal(way, again) {
					t.Errorf("with %q: %+v, %d bytes and not %d", have, sent, len(again), len(way))
				}
			}
		})
	}
}

// Who begins anew, without having asked what is here, may break off sooner.
func TestAnAttemptThatBreaksSoonerLeavesWhatCameBefore(t *testing.T) {
	p := &pairing{near: newBench(t), far: newBench(t), rand: rand.New(rand.NewPCG(1, 2))}
	p.near.write("large", p.noise(1<<20))
	p.near.new("fix")
	way, sent := p.send(t, transfer.SendRequest{Sandbox: "fix"})
	var had []string
	for _, n := range []int{900_000, 1000, 500_000, 0, 400} {
		if _, err := p.receive(io.MultiReader(bytes.NewReader(way[:n]), failing{errBroken})); !errors.Is(err, errBroken) {
			t.Errorf("broken after %d bytes: %v", n, err)
		}
		have, err := transfer.New(p.far.Engine).Offers("fix")
		if err != nil || len(have) != 1 || had != nil && !slices.Equal(have, had) {
			t.Errorf("after %d bytes it has %v, %v, and had %v", n, have, err, had)
		}
		had = have
		p.far.sound("after what broke off")
		if strange, err := transfer.New(p.far.Engine).Unknown(); err != nil || len(strange) > 0 {
			t.Errorf("%v is strange, %v", strange, err)
		}
	}
	p.equal(t, p.carry(t, transfer.SendRequest{Sandbox: "fix", State: sent.State, Have: had}))
	p.far.removeLater("fix")
}

// Collect removes partial files after a week, and leaves younger ones.
func TestCollectRemovesOldPartialFiles(t *testing.T) {
	b := newBench(t)
	e, err := engine.Open(t.Context(), engine.Config{State: b.state, Drivers: drivers(), Expire: transfer.Expire})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.state, "begun")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old-s1": 8 * 24 * time.Hour, "young-s1": 6 * 24 * time.Hour} {
		file, when := filepath.Join(dir, name), time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "young-s1" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestForgetRemovesWhatCameWhateverTheClockSaid(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.state, "begun", "abc-s1")
	later := time.Now().Add(time.Hour)
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600), os.Chtimes(file, later, later)); err != nil {
		t.Fatal(err)
	}
	if n, err := transfer.New(b.Engine).Forget(); n != 1 || err != nil {
		t.Errorf("it forgot %d, %v", n, err)
	}
}

func (b *bench) frozen(name string) bool {
	b.t.Helper()
	info, err := b.Show(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return info.Base == "frozen"
}

// send returns the sent stream.
func (p *pairing) send(t *testing.T, req transfer.SendRequest) ([]byte, transfer.Sent) {
	t.Helper()
	var way bytes.Buffer
	sent, err := transfer.New(p.near.Engine).Send(t.Context(), &way, req)
	if err != nil {
		t.Fatal(err)
	}
	return way.Bytes(), sent
}

func (p *pairing) receive(r io.Reader) (transfer.Received, error) {
	req := p.far.request()
	req.Name = "fix"
	return transfer.New(p.far.Engine).Receive(p.far.t.Context(), r, transfer.ReceiveRequest{Request: req})
}

var errBroken = errors.New("the way broke")

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// broken breaks the way, cuts off what is sent or damages it, and looks that
// nothing has come of it.
func (p *pairing) broken(t *testing.T, req transfer.SendRequest, n int) {
	t.Helper()
	way, sent := p.send(t, req)
	before, err := p.far.List(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		at := p.rand.IntN(len(way))
		r := io.MultiReader(bytes.NewReader(way[:at]), failing{errBroken})
		want := errBroken
		switch i % 3 {
		case 1:
			r, want = bytes.NewReader(way[:at]), errs.ErrCorrupt
		case 2:
			damaged := bytes.Clone(way)
			damaged[at] ^= 1 << p.rand.IntN(8)
			r, want = bytes.NewReader(damaged), errs.ErrCorrupt
		}
		if _, err := p.receive(r); !errors.Is(err, want) {
			t.Errorf("interrupted at %d of %d of %s, in way %d: %v", at, len(way), sent.State, i%3, err)
		}
	}
	after, err := p.far.List(t.Context(), true)
	if err != nil || len(after) != len(before) {
		t.Errorf("there were %d sandboxes, and are %d: %v", len(before), len(after), err)
	}
	p.far.sound("after what was interrupted")
}

// noise is text of n bytes that says nothing.
func (p *pairing) noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + p.rand.IntN(26))
	}
	return string(b)
}

// goneOn sends over a way that breaks n times, each time what the other side has not
// got; at last the rest.
func (p *pairing) goneOn(t *testing.T, req transfer.SendRequest, n int) transfer.Received {
	t.Helper()
	way, sent := p.send(t, req)
	whole := len(way)
	req.State = sent.State
	var had snapshot.Bytes
	for i := range n {
		r := io.MultiReader(bytes.NewReader(way[:p.rand.IntN(len(way))]), failing{errBroken})
		if _, err := p.receive(r); !errors.Is(err, errBroken) {
			t.Errorf("the way broke the %dth time: %v", i+1, err)
		}
		have, err := transfer.New(p.far.Engine).Offers("fix")
		if err != nil {
			t.Fatal(err)
		}
		req.Have = have
		way, sent = p.send(t, req)
		if sent.From < had {
			t.Errorf("it goes on from %v, and had gone on from %v", sent.From, had)
		}
		had = sent.From
		p.far.sound("after what is to be gone on with")
	}
	if n > 2 && whole > 1<<20 && had == 0 || whole < len(way)+int(had)-(1<<10) {
		t.Errorf("the rest is %d of %d bytes, and %v were there", len(way), whole, had)
	}
	t.Logf("%d of %d bytes were left to send", len(way), whole)
	return p.carry(t, req)
}

func (p *pairing) carry(t *testing.T, req transfer.SendRequest) transfer.Received {
	t.Helper()
	way, sent := p.send(t, req)
	got, err := p.receive(bytes.NewReader(way))
	if err != nil {
		t.Fatal(err)
	}
	if got.State != sent.State || got.ID != sent.ID {
		t.Errorf("sent %+v, received %+v", sent, got)
	}
	if !got.New && sent.From == 0 {
		if _, err := p.receive(bytes.NewReader(way)); !errors.Is(err, errs.ErrExists) {
			t.Errorf("receiving it twice gives %v", err)
		}
	}
	p.far.sound("after what was received")
	return got
}

// equal compares the state that was received with the one that was sent, in
// content and metadata.
func (p *pairing) equal(t *testing.T, got transfer.Received) {
	t.Helper()
	want, err := openState(t.Context(), p.near.Engine, "fix", got.State)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	have, err := openState(t.Context(), p.far.Engine, got.Sandbox, got.State)
	if err != nil {
		t.Fatal(err)
	}
	defer have.Close()
	treetest.Compare(t, want, have, treetest.Options{Skip: func(path string) bool { return path == ".snapfs" }})
}

// Of the directory that all comes into the other side knows nothing: it is sent, though it be
// as the sender makes its own empty one.
func TestTheRootOfAWholeWorkspaceIsSent(t *testing.T) {
	for name, files := range map[string][]string{"files": {"file"}, "no files": nil} {
		t.Run(name, func(t *testing.T) {
			near, far := newBench(t), newBench(t)
			p := &pairing{near: near, far: far}
			for _, file := range files {
				near.write(file, "one")
			}
			empty := filepath.Join(near.state, "empty") // which is no business of the other side's
			err := errors.Join(os.Chmod(near.workspace, 0o700), os.Mkdir(empty, 0o700), unix.Setxattr(empty, "user.mine", []byte("x"), 0))
			if err != nil {
				t.Fatal(err)
			}
			near.new("fix")
			got := p.carry(t, transfer.SendRequest{Sandbox: "fix"})
			far.removeLater("fix")
			p.equal(t, got)
			if mode := far.in("fix", "stat -c %a ."); mode != "700\n" {
				t.Errorf("it has the mode %s", mode)
			}
		})
	}
}

// openState opens the workspace of a sandbox at a named snapshot.
func openState(ctx context.Context, e *engine.Engine, name, state string) (*os.File, error) {
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return nil, err
	}
	ids, err := sandbox.SnapshotIDs(rec, state)
	if err != nil {
		return nil, err
	}
	tree, _ := compare.WorkspaceTree(rec)
	b, err := e.Host.BackendOf(ctx, tree)
	if err != nil {
		return nil, err
	}
	view, err := compare.ViewOf(ctx, b, tree, ids[slices.IndexFunc(rec.Trees, func(t catalog.Tree) bool { return t.Path == tree.Path })])
	if err != nil {
		return nil, err
	}
	dirs, err := hostfs.OpenDir(ctx, isolate.OpenViews, b, tree.Path, rec.Workspace, false, view)
	if err != nil {
		return nil, err
	}
	defer dirs[0].Close()
	return os.Open(vfs.FDPath(dirs[0]) + "/.") // it was opened with O_PATH
}
