package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

var (
	interleaveSeed   = flag.Uint64("interleave.seed", 0, "play only this seed of TestDisjointWorkNeverConflicts")
	interleaveBudget = flag.Duration("interleave.for", 0, "how long TestDisjointWorkNeverConflicts plays on each backend")
	interleaveRounds = flag.Int("interleave.rounds", 0, "how many interleavings TestDisjointWorkNeverConflicts plays on each backend")
)

// A person and six sandboxes edit one workspace and are promoted in any order, without a pause.
// Each owns lines of every text and paths of every directory. What they own must arrive as the
// last one left it, with no conflict. A few files are everybody's: there, a promotion conflicts
// if the real file is no longer what the sandbox began with, and only then.
func TestDisjointWorkNeverConflicts(t *testing.T) {
	crossings(t, &crossing{}, append(modelPlaces()[:3], servedPlace))
}

// The same, and in each sandbox a command runs from the beginning to the end: the sandbox stays
// mounted while the real files under it are replaced.
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
			cross(t, kind, places[0], work, state)
			return
		}
		treetest.NeedRoot(t) // for the disks
		a := treetest.User(t)
		work, state := places[0].disks(t, a.UID)
		treetest.RunAs(t, a, t.Name(), treetest.WithEnv(append(rapidEnv(), modelDisks+"="+work+":"+state)...))
	})
}

// cross plays interleavings on one backend.
func cross(t *testing.T, kind *crossing, place modelPlace, work, state string) {
	budget := *interleaveBudget
	if budget == 0 {
		budget = time.Duration(treetest.Budget(t, 0, 12)) * time.Second // 0 is one round
	}
	seed, rounds, promotions, edits := *interleaveSeed, 0, 0, 0
	for began := time.Now(); ; {
		if *interleaveSeed == 0 {
			seed = rand.Uint64()
		}
		top, state := filepath.Join(work, fmt.Sprint("w", rounds)), filepath.Join(state, fmt.Sprint("s", rounds))
		w := &crossing{b: benchIn(t, top, state), place: place, warm: kind.warm, others: kind.others, r: rand.New(rand.NewPCG(seed, 0))}
		w.play()
		rounds, promotions, edits = rounds+1, promotions+w.promotions, edits+w.edits
		if t.Failed() {
			t.Fatalf("-interleave.seed=%d after %d rounds:\n%s", seed, rounds, strings.Join(w.log, "\n"))
		}
		if *interleaveSeed != 0 || rounds >= *interleaveRounds && time.Since(began) > budget {
			break
		}
		if rounds%100 == 0 {
			t.Logf("%d interleavings with %d promotions and %d edits", rounds, promotions, edits)
		}
		if _, err := w.b.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		_, _ = os.RemoveAll(top), os.RemoveAll(state) // the disk would be full after some hundred rounds
	}
	t.Logf("%d interleavings with %d promotions and %d edits", rounds, promotions, edits)
}

const (
	actors    = 7 // the person is number 0
	texts     = 2
	ownFiles  = 2 // of each actor in each directory
	contested = 2
)

// A crossing is one interleaving.
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
	real  map[string]string
	boxes [actors]*crossingBox
}

// crossingBox is a sandbox, nil before it is made.
type crossingBox struct {
	own map[string]string // what it has set and removed of its own; "" for removed
	// began is what each contested file that the sandbox changed began with, and mine what the
	// sandbox made of it.
	began, mine map[string]string
	atFork      map[string]string // the contested files at the fork
	resident    *resident         // runs in a warm sandbox
}

func (c *crossing) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *crossing) value() string { c.next++; return fmt.Sprint("v", c.next) }

func textLine(text, actor int) string { return fmt.Sprintf("text%d:%d", text, actor) }

func dirOf(i int) string { return []string{".", "d"}[i%2] }

func contestedFile(i int) string { return fmt.Sprint("c", i) }

// play makes the workspace, plays the steps and compares.
func (c *crossing) play() {
	c.real = map[string]string{}
	must := func(err error) {
		if err != nil {
			c.b.t.Fatal(err)
		}
	}
	for i := range c.others {
		dir := filepath.Join("others", fmt.Sprint(i/50))
		must(os.MkdirAll(filepath.Join(c.b.workspace, dir), 0o755))
		c.b.write(filepath.Join(dir, fmt.Sprint(i)), fmt.Sprintln("nobody edits", i))
	}
	must(os.Mkdir(filepath.Join(c.b.workspace, "d"), 0o755))
	for text := range texts {
		for a := range actors {
			c.real[textLine(text, a)] = "0"
		}
		c.b.write(fmt.Sprint("text", text), c.text(text))
	}
	for a := range actors {
		for k := range ownFiles {
			if c.r.IntN(2) == 0 {
				path := c.ownPath(a, k)
				c.real[path] = "0"
				c.b.write(path, "0\n")
			}
		}
	}
	for i := range contested {
		c.real[contestedFile(i)] = "0"
		c.b.write(contestedFile(i), "0\n")
	}
	defer c.clean()
	for range 25 + c.r.IntN(15) {
		if c.step(); c.b.t.Failed() {
			return
		}
	}
	for a := 1; a < actors && !c.b.t.Failed(); a++ {
		if c.boxes[a] != nil {
			c.promote(a)
		}
	}
	c.compare()
}

func (c *crossing) ownPath(a, k int) string {
	return filepath.Join(dirOf(k), fmt.Sprintf("a%d-%d", a, k))
}

// text is the content of a text: a line of each actor, with lines between them that nobody
// changes.
func (c *crossing) text(text int) string {
	var b strings.Builder
	for a := range actors {
		fmt.Fprintf(&b, "between %d\nactor %d: %s\n", a, a, c.real[textLine(text, a)])
	}
	return b.String() + "end\n"
}

func (c *crossing) clean() {
	for a, box := range c.boxes {
		if box != nil {
			if box.resident != nil {
				box.resident.end()
			}
			_ = c.b.Remove(context.Background(), fmt.Sprint("b", a))
		}
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
		req.Name, req.Backend = fmt.Sprint("b", a), c.place.asks
		if _, err := c.b.New(c.b.t.Context(), req); err != nil {
			c.b.t.Fatal(err)
		}
		c.boxes[a] = &crossingBox{own: map[string]string{}, began: map[string]string{}, mine: map[string]string{}, atFork: map[string]string{}}
		if c.warm {
			c.boxes[a].resident = c.begin(req.Name)
		}
		for i := range contested {
			c.boxes[a].atFork[contestedFile(i)] = c.real[contestedFile(i)]
		}
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

// edit changes one to three things, in the real workspace for the person.
func (c *crossing) edit(a int) {
	c.edits++
	var script []string
	for range 1 + c.r.IntN(3) {
		script = append(script, c.oneEdit(a))
	}
	all := strings.Join(script, "\n")
	c.note("actor %d: %s", a, strings.ReplaceAll(all, "\n", "; "))
	switch {
	case a != 0 && c.r.IntN(4) == 0:
		c.held(a, all)
		return
	case a != 0:
		c.b.in(fmt.Sprint("b", a), "set -e\n"+all)
		return
	}
	person := exec.CommandContext(c.b.t.Context(), "/bin/sh", "-ec", all)
	person.Dir = c.b.workspace
	if out, err := person.CombinedOutput(); err != nil {
		c.b.t.Fatalf("%v: %s", err, out)
	}
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
		Args: []string{"/bin/sh", "-ec", script + "\necho done\nread x || true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: c.b.workspace, Stdin: in, Stdout: w,
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

// oneEdit changes the expectation, and returns the script that does the same.
func (c *crossing) oneEdit(a int) string {
	v := c.value()
	set := func(key, value string) {
		switch {
		case a != 0:
			c.boxes[a].own[key] = value
		case value == "":
			delete(c.real, key)
		default:
			c.real[key] = value
		}
	}
	switch c.r.IntN(8) {
	case 0, 1: // a new file takes the place of the old one
		text := c.r.IntN(texts)
		set(textLine(text, a), v)
		return fmt.Sprintf("sed -i 's/^actor %d: .*/actor %d: %s/' text%d", a, a, v, text)
	case 2, 3: // the same file is written
		text := c.r.IntN(texts)
		set(textLine(text, a), v)
		return fmt.Sprintf("t=$(sed 's/^actor %d: .*/actor %d: %s/' text%d); echo \"$t\" > text%d", a, a, v, text, text)
	case 4, 5:
		path := c.ownPath(a, c.r.IntN(ownFiles))
		set(path, v)
		return fmt.Sprintf("echo %s > %s", v, path)
	case 6:
		path := c.ownPath(a, c.r.IntN(ownFiles))
		set(path, "")
		return "rm -f " + path
	}
	path := contestedFile(c.r.IntN(contested))
	if a == 0 {
		c.real[path] = v
	} else {
		box := c.boxes[a]
		if _, changed := box.mine[path]; !changed {
			if _, promoted := box.began[path]; !promoted {
				box.began[path] = c.real[path]
				if c.place.frozen {
					box.began[path] = box.atFork[path]
				}
			}
		}
		box.mine[path] = v
	}
	return fmt.Sprintf("echo %s > %s", v, path)
}

// promote promotes a sandbox, and checks its conflicts.
func (c *crossing) promote(a int) {
	c.promotions++
	box, name := c.boxes[a], fmt.Sprint("b", a)
	var overlaps, seen []string
	for path, mine := range box.mine {
		at := filepath.Join(c.b.workspace, path)
		switch {
		case c.real[path] == mine:
		case c.real[path] != box.began[path]:
			overlaps = append(overlaps, at)
		case c.warm && box.began[path] != box.atFork[path]:
			seen = append(seen, at)
		}
	}
	_, err := c.b.Reconcile.Promote(c.b.t.Context(), name, reconcile.PromoteOptions{})
	c.note("promote %s: %v", name, err)
	for _, path := range seen { // the real file changed while the sandbox was mounted and before it did: it may not have seen that
		if err != nil && strings.Contains(err.Error(), path+": ") {
			overlaps = append(overlaps, path)
		}
	}
	slices.Sort(overlaps)
	theirs := c.r.IntN(2) == 0
	switch {
	case len(overlaps) == 0 && err != nil:
		c.b.t.Errorf("%s conflicts with nothing: %v", name, err)
		return
	case len(overlaps) > 0 && !errors.Is(err, errs.ErrConflict):
		c.b.t.Errorf("%s overlaps at %v: %v", name, overlaps, err)
		return
	case len(overlaps) > 0:
		for _, path := range overlaps {
			if !strings.Contains(err.Error(), path+": ") {
				c.b.t.Errorf("%s is not among the conflicts: %v", path, err)
			}
		}
		if n := strings.Count(err.Error(), c.b.workspace+"/"); n != len(overlaps) {
			c.b.t.Errorf("conflicts beyond %v: %v", overlaps, err)
		}
		o := reconcile.PromoteOptions{Mine: overlaps}
		if theirs {
			o = reconcile.PromoteOptions{Theirs: overlaps}
		}
		_, err = c.b.Reconcile.Promote(c.b.t.Context(), name, o)
		if c.note("answered, theirs %v: %v", theirs, err); err != nil {
			c.b.t.Errorf("an answered promotion: %v", err)
			return
		}
	}
	for key, value := range box.own {
		if value == "" {
			delete(c.real, key)
		} else {
			c.real[key] = value
		}
	}
	for path, mine := range box.mine {
		if !theirs || !slices.Contains(overlaps, filepath.Join(c.b.workspace, path)) {
			c.real[path] = mine
		}
		box.began[path], box.atFork[path] = mine, mine
	}
	clear(box.mine)
	clear(box.own)
	c.compare()
}

// compare checks the whole workspace.
func (c *crossing) compare() {
	want := map[string]string{}
	for text := range texts {
		want[fmt.Sprint("text", text)] = c.text(text)
	}
	for key, value := range c.real {
		if !strings.Contains(key, ":") {
			want[key] = value + "\n"
		}
	}
	got := map[string]string{}
	for i := range 2 {
		list, err := os.ReadDir(filepath.Join(c.b.workspace, dirOf(i)))
		if err != nil {
			c.b.t.Fatal(err)
		}
		for _, e := range list {
			if path := filepath.Join(dirOf(i), e.Name()); e.Type().IsRegular() {
				got[path] = c.b.read(path)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] {
			c.b.t.Errorf("%s is %q, want %q", path, got[path], want[path])
		}
		delete(got, path)
	}
	if len(got) > 0 {
		c.b.t.Errorf("more files than expected: %v", got)
	}
}
