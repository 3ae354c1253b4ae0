package engine_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

var (
	interleaveSeed   = flag.Uint64("interleave.seed", 0, "play only the series of this seed in TestDisjointWorkNeverConflicts")
	interleaveBudget = flag.Duration("interleave.for", 0, "how long TestDisjointWorkNeverConflicts plays on each backend")
	// Removals of what several actors edit still miss a conflict. Both sides remove a file, the sandbox is promoted, the
	// person makes the file again, the sandbox edits that, and the person removes it: the promotion brings it back.
	interleaveRemovals = flag.Bool("interleave.removals", false, "let actors also remove files that all of them edit")
	interleaveRounds   = flag.Int("interleave.rounds", 0, "how many interleavings TestDisjointWorkNeverConflicts plays on each backend")
)

// A person and six sandboxes edit one workspace and are promoted in any order, without a pause.
// Each owns lines of every text and paths of every directory. What they own must arrive as the
// last one left it, with no conflict. A few files are everybody's: there, a promotion conflicts
// if the real file is no longer what the sandbox began with, and only then. Each edit of a
// sandbox is a command of its own, which starts the sandbox and ends it.
func TestDisjointWorkNeverConflicts(t *testing.T) {
	crossings(t, &crossing{}, append(modelPlaces()[:3], servedPlace))
}

// The same, and in each sandbox a shell runs from the beginning to the end and makes most of the
// edits: the sandbox stays mounted while the real files under it are replaced.
func TestDisjointWorkNeverConflictsInWarmSandboxes(t *testing.T) {
	places := []modelPlace{modelPlaces()[0], servedPlace} // live bases
	if treetest.Long(t) {
		places = append(modelPlaces()[:3], servedPlace)
	}
	crossings(t, &crossing{warm: true}, places)
}

// The same on live bases, in a workspace with 2,000 more files: the sandbox starts while the
// workspace is read, and the person edits from the first milliseconds on.
func TestDisjointWorkNeverConflictsInALargeWarmWorkspace(t *testing.T) {
	crossings(t, &crossing{warm: true, others: 2000}, []modelPlace{modelPlaces()[0], servedPlace})
}

var servedPlace = modelPlace{name: "fusecow", asks: "fusecow"}

// crossings plays interleavings like the template kind on each backend.
func crossings(t *testing.T, kind *crossing, places []modelPlace) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			treetest.NeedRoot(t)
			if place.name == servedPlace.name {
				treetest.NeedDevice(t, "/dev/fuse")
			}
			work, state := place.disks(t, 0)
			treetest.Leaks(t, state)
			cross(t, kind, place, work, state)
		})
	}
	if os.Getenv(modelDisks) == "" && !treetest.Long(t) {
		return
	}
	t.Run("overlay, user", func(t *testing.T) {
		if disks := os.Getenv(modelDisks); disks != "" {
			work, state, _ := strings.Cut(disks, ":")
			if _, err := fmt.Sscan(os.Getenv(crossingFlags), interleaveSeed, (*int64)(interleaveBudget), interleaveRounds, interleaveRemovals); err != nil {
				t.Fatal(err)
			}
			cross(t, kind, places[0], work, state)
			return
		}
		treetest.NeedRoot(t) // for the disks
		a := treetest.User(t)
		work, state := places[0].disks(t, a.UID)
		flags := fmt.Sprint(crossingFlags, "=", *interleaveSeed, " ", int64(*interleaveBudget), " ", *interleaveRounds, " ", *interleaveRemovals)
		treetest.RunAs(t, a, t.Name(), treetest.WithEnv(modelDisks+"="+work+":"+state, flags))
	})
}

// crossingFlags hands the flags on to the test as an ordinary user.
const crossingFlags = "SNAPFS_TEST_INTERLEAVE"

// cross plays interleavings on one backend, in series.
func cross(t *testing.T, kind *crossing, place modelPlace, work, state string) {
	budget := *interleaveBudget
	if budget == 0 {
		budget = time.Duration(treetest.Budget(t, 0, 12)) * time.Second // 0 is one interleaving
	}
	seed, rounds, promotions, edits := *interleaveSeed, 0, 0, 0
	began := time.Now()
	enough := func() bool {
		return *interleaveSeed == 0 && rounds >= *interleaveRounds && time.Since(began) > budget
	}
	for n := 0; n == 0 || *interleaveSeed == 0 && !enough(); n++ {
		if *interleaveSeed == 0 {
			seed = rand.Uint64()
		}
		top, state := filepath.Join(work, fmt.Sprint("w", n)), filepath.Join(state, fmt.Sprint("s", n))
		c := &crossing{b: benchIn(t, top, state), place: place, warm: kind.warm, others: kind.others, r: rand.New(rand.NewPCG(seed, 0))}
		c.prepare()
		for i := 0; i < seriesLength && !t.Failed() && (i == 0 || !enough()); i++ {
			c.play()
			rounds++
		}
		promotions, edits = promotions+c.promotions, edits+c.edits
		if c.clean(); t.Failed() {
			t.Fatalf("-interleave.seed=%d after %d interleavings:\n%s", seed, rounds, strings.Join(c.log, "\n"))
		}
		if n%10 == 9 {
			t.Logf("%d interleavings with %d promotions and %d edits", rounds, promotions, edits)
		}
		if _, err := c.b.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		_, _ = os.RemoveAll(top), os.RemoveAll(state) // the disk would be full after some hundred rounds
	}
	t.Logf("%d interleavings with %d promotions and %d edits in %v", rounds, promotions, edits, time.Since(began).Round(time.Second))
}

const (
	actors    = 7 // the person is number 0
	texts     = 2
	ownPaths  = 3 // of each actor
	contested = 2
	// seriesLength is the number of interleavings in one workspace. After each, one sandbox of six is removed, and
	// one refreshed; the others are edited on.
	seriesLength = 10
)

// A crossing is a series of interleavings in one workspace.
type crossing struct {
	b                 *bench
	place             modelPlace
	warm              bool
	others            int // files that nobody edits
	r                 *rand.Rand
	log               []string
	next              int // number of the next value
	promotions, edits int // played so far
	// real is what the workspace must hold: by text and line, or by path.
	real    crossingTree
	changed map[string]int // when each text changed last, in lines of the log
	person  *resident
	boxes   [actors]*crossingBox
}

// crossingBox is a sandbox, nil before it is made.
type crossingBox struct {
	own crossingTree // what the sandbox must hold of what its actor owns
	// began is what each contested file that the sandbox changed began with, and mine what the
	// sandbox made of it.
	began, mine map[string]string
	atFork      map[string]string // the contested files at the fork, or when it was mounted
	moved       bool              // it has renamed something since it was promoted
	touched     map[string]bool   // the texts that it has changed since its fork
	gone        map[string]bool   // the contested files that it removed when the real ones had gone already
	// unseen: its shell was the first in it to change a text that had changed since the shell began. The version that
	// it began with is in the real tree alone, and snapfs has not looked there since.
	unseen   bool
	since    int       // when the shell began, in lines of the log
	resident *resident // runs in a warm sandbox
}

func (c *crossing) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *crossing) value() string { c.next++; return fmt.Sprint("v", c.next) }

func boxName(a int) string { return fmt.Sprint("b", a) }

func (c *crossing) must(err error) {
	c.b.t.Helper()
	if err != nil {
		c.b.t.Fatalf("%v\n%s", err, strings.Join(c.log, "\n"))
	}
}

// prepare makes the workspace.
func (c *crossing) prepare() {
	c.real, c.changed = crossingTree{}, map[string]int{}
	for i := range c.others {
		dir := filepath.Join("others", fmt.Sprint(i/50))
		c.must(os.MkdirAll(filepath.Join(c.b.workspace, dir), 0o755))
		c.b.write(filepath.Join(dir, fmt.Sprint(i)), fmt.Sprintln("nobody edits", i))
	}
	c.person = c.b.person()
	c.must(os.Mkdir(filepath.Join(c.b.workspace, "d"), 0o755))
	for text := range texts {
		for a := range actors {
			c.real[textLine(text, a)] = "0"
		}
		c.b.write(fmt.Sprint("text", text), c.text(text))
	}
	for a := range actors {
		for k := range ownPaths {
			if c.r.IntN(2) == 0 {
				c.write(ownPath(a, k))
			}
		}
	}
	for i := range contested {
		c.write(contestedFile(i))
	}
}

// write makes a file of the workspace. Each has other content: else snapfs would take one for another, renamed.
func (c *crossing) write(path string) {
	v := c.value()
	c.real[path] = plainFile(v)
	c.b.write(path, v+"\n")
}

// play plays one interleaving. Then it removes some sandboxes, refreshes some, and leaves the others as they are.
func (c *crossing) play() {
	c.note("interleaving")
	for range 25 + c.r.IntN(15) {
		if c.step(); c.b.t.Failed() {
			return
		}
	}
	for a := 1; a < actors; a++ {
		if c.boxes[a] == nil {
			continue
		}
		if c.promote(a); c.b.t.Failed() {
			return
		}
		switch c.r.IntN(6) {
		case 0:
			c.remove(a)
		case 1:
			c.refresh(a)
		}
	}
}

func (c *crossing) clean() {
	for a, box := range c.boxes {
		if box != nil {
			c.remove(a)
		}
	}
	c.person.end()
}

func (c *crossing) remove(a int) {
	c.note("remove b%d", a)
	c.sleep(a)
	c.must(c.b.Remove(context.Background(), boxName(a)))
	c.boxes[a] = nil
}

// refresh gives a sandbox that has just been promoted a new base.
func (c *crossing) refresh(a int) {
	c.sleep(a)
	c.must(c.b.Supervise.Stop(c.b.t.Context(), boxName(a)))
	got, err := c.b.Reconcile.Refresh(c.b.t.Context(), boxName(a), reconcile.RefreshOptions{})
	if c.note("refresh b%d: %v", a, err); err != nil || len(got.Conflicts) > 0 {
		c.b.t.Errorf("refreshing what was promoted: %+v, %v", got, err)
	}
	clear(c.boxes[a].began)
	clear(c.boxes[a].touched)
	clear(c.boxes[a].gone)
	c.shows(a)
	c.wake(a)
}

// shows notes the contested files that the sandbox sees: those of a frozen base at its fork, of a live one when it is
// mounted.
func (c *crossing) shows(a int) {
	box := c.boxes[a]
	for i := range contested {
		path := contestedFile(i)
		if _, changed := box.began[path]; !changed {
			box.atFork[path] = c.real[path]
		}
	}
}

// wake starts the shell of a warm sandbox, and sleep ends it.
func (c *crossing) wake(a int) {
	if c.warm {
		c.boxes[a].resident, c.boxes[a].since = c.begin(boxName(a)), len(c.log)
	}
	if !c.place.frozen {
		c.shows(a)
	}
}

func (c *crossing) sleep(a int) {
	if box := c.boxes[a]; box.resident != nil {
		box.resident.end()
		box.resident = nil
	}
}

// step plays one random step.
func (c *crossing) step() {
	a := c.r.IntN(actors)
	switch {
	case a == 0:
		c.edit(0)
	case c.boxes[a] == nil:
		c.note("new b%d", a)
		req := c.b.request()
		req.Name, req.Backend = boxName(a), c.place.asks
		_, err := c.b.New(c.b.t.Context(), req)
		c.must(err)
		c.boxes[a] = &crossingBox{own: c.real.of(a), began: map[string]string{}, mine: map[string]string{}, atFork: map[string]string{}, touched: map[string]bool{}, gone: map[string]bool{}}
		c.shows(a)
		c.wake(a)
	case c.r.IntN(3) == 0:
		c.promote(a)
	default:
		c.edit(a)
	}
}

// begin starts a sandbox. On a busy machine the start does not wait for the reading of a large workspace: then the
// person does.
func (c *crossing) begin(name string) *resident {
	began := time.Now()
	r := c.b.resident(name)
	if c.others > 0 && !c.place.frozen {
		c.b.listed(began)
	}
	return r
}

// edit changes one to three things, for the person in the real workspace. In a warm sandbox mostly its shell makes the
// changes, in another one a command of its own.
func (c *crossing) edit(a int) {
	if c.edits++; a == 0 {
		c.look()
	}
	var script []string
	for range 1 + c.r.IntN(3) {
		script = append(script, c.oneEdit(a))
	}
	all := strings.Join(script, "\n")
	c.note("actor %d: %s", a, strings.ReplaceAll(all, "\n", "; "))
	how := c.r.IntN(16)
	switch {
	case a == 0:
		c.person.do(c.b.t, inOneGo(all))
	case how == 0 || how < 4 && !c.warm:
		c.held(a, all)
	case how == 1 && c.warm:
		c.note("b%d sleeps", a)
		c.sleep(a)
		c.command(a, all)
		c.wake(a)
	case how == 2 || !c.warm:
		c.command(a, all)
	default:
		c.boxes[a].resident.do(c.b.t, inOneGo(all))
	}
}

// command runs a script in a sandbox as a command of its own, at whose end snapfs looks at what it changed.
func (c *crossing) command(a int, script string) {
	c.b.in(boxName(a), "umask 022; set -e\n"+script)
	c.boxes[a].unseen = false
}

// look looks at what sandboxes have changed before the person edits, as snapfs diff does, where the person's edit
// could replace the only version that a sandbox began with. That would be a conflict on a live base.
func (c *crossing) look() {
	for a, box := range c.boxes {
		if box != nil && box.unseen && !c.place.frozen {
			d, err := c.b.Compare.Diff(c.b.t.Context(), boxName(a), "", "")
			c.must(err)
			d.Close()
			c.note("looked at b%d", a)
			box.unseen = false
		}
	}
}

// inOneGo returns a script that runs script in a shell of its own, and prints "fail" if that ends at an error.
func inOneGo(script string) string {
	return "(umask 022; set -e\n" + script + "\n)\n[ $? = 0 ] || echo fail"
}

// held runs a script in a sandbox whose command goes on while others are promoted.
func (c *crossing) held(a int, script string) {
	out, w, err := os.Pipe()
	if err != nil {
		c.b.t.Fatal(err)
	}
	defer out.Close()
	in, hold, err := os.Pipe()
	if err != nil {
		c.b.t.Fatal(err)
	}
	defer hold.Close()
	p, err := c.b.Supervise.Exec(c.b.t.Context(), fmt.Sprint("b", a), isolate.Command{
		Args: []string{"/bin/sh", "-ec", "umask 022\n" + script + "\necho done\nread x || true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: c.b.workspace, Stdin: in, Stdout: w,
	})
	w.Close()
	in.Close()
	if err != nil {
		c.b.t.Fatal(err)
	}
	defer p.Close()
	if _, err := io.ReadFull(out, make([]byte, len("done"))); err != nil {
		c.b.t.Fatal(err)
	}
	for range 1 + c.r.IntN(3) {
		if other := 1 + c.r.IntN(actors-1); other != a && c.boxes[other] != nil && !c.b.t.Failed() {
			c.promote(other)
		}
	}
	hold.Close()
	if st, err := p.Wait(c.b.t.Context()); err != nil || st.ExitCode() != 0 {
		c.b.t.Fatalf("a held command: %v, %v", st, err)
	}
	c.note("actor %d ends", a)
}
