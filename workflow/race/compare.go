package race

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/errs"
)

// A Comparison groups the attempts of a race (several attempts at one task) by their results in the
// workspace. It includes attempts that ended by themselves, and ignores times and inode numbers.
type Comparison struct {
	// Paths are the paths that at least one attempt changed, sorted.
	Paths []ComparedPath `json:"paths"`
	// Identical are groups of two or more attempts with the same result.
	Identical [][]int `json:"identical"`
}

// A ComparedPath is a path that some attempts of a race (several attempts at one task) have changed, with the
// attempts grouped by its new state.
type ComparedPath struct {
	// Path is relative to the workspace.
	Path string `json:"path"`
	// Alike groups the numbers of the attempts that changed the path: those in one group have
	// the same state at the path.
	Alike [][]int `json:"alike"`
}

// sizeSoon measures how much an attempt of a race has changed, as size does. It retries after an error,
// because mounts of the host may appear and vanish while the trees are compared.
func (l *attemptRunner) sizeSoon(ctx context.Context) (size *ResultSize, err error) {
	for tries := 1; ; tries++ {
		if size, err = l.size(ctx); err == nil || tries == 5 {
			return size, err
		}
		time.Sleep(time.Duration(tries) * 20 * time.Millisecond)
	}
}

// size measures how much an attempt of a race has changed in its sandbox. It leaves the changes open for the
// comparison with the other attempts.
func (l *attemptRunner) size(ctx context.Context) (*ResultSize, error) {
	c, err := l.s.Engine.Compare.Changes(ctx, l.s.Record)
	if err != nil {
		return nil, err
	}
	if old := l.m.changes[l.i]; old != nil {
		old.Close()
	}
	l.m.changes[l.i] = c
	var size ResultSize
	for _, p := range c.Parts {
		n := 0
		for _, ch := range p.Changes {
			if !ch.TimeOnly() {
				n++
			}
		}
		if !p.Workspace {
			size.Elsewhere += n
			continue
		}
		size.Paths = n
		size.Added, size.Deleted, err = patch.Lines(ctx, p.Old, p.New, p.Changes)
		if size.Unread = errors.Is(err, errs.ErrDenied); err != nil && !size.Unread {
			return nil, err
		}
	}
	return &size, nil
}

// compare compares the results of all attempts with each other, after all have ended, and measures the drift
// of the real workspace.
func (r *Race) compare(ctx context.Context) error {
	t := tally{states: map[string]map[int]string{}}
	drift := r.drift(ctx)
	for i := range r.Attempts {
		a, c := &r.Attempts[i], r.changes[i]
		if a.Size == nil {
			continue
		}
		a.Drift = drift(c)
		if a.State == Passed || a.State == Failed {
			t.add(a.Number, c)
		}
	}
	return t.settle(ctx, &r.Compared)
}

// drift detects the drift of the real workspace once for all attempts of the race. It returns a function that
// counts the drifted paths, and those of them that one attempt, with the changes mine, has changed too. That
// function returns nil if the drift is unknown.
func (r *Race) drift(ctx context.Context) func(mine *compare.Changes) *ResultDrift {
	rec := r.sessions[0].Record
	unknown := func(*compare.Changes) *ResultDrift { return nil }
	t, ok := compare.WorkspaceTree(rec)
	if !ok {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, engine.DriftBudget)
	defer cancel()
	changes, _, err := r.e.engine.Compare.RealChanges(ctx, rec, t)
	if err != nil {
		return unknown
	}
	paths := compare.DriftPaths(t, changes, nil)
	return func(mine *compare.Changes) *ResultDrift {
		d := compare.DriftReport{Paths: slices.Clone(paths)}
		d.MarkChanged(mine)
		return &ResultDrift{Paths: d.Files, Both: d.Both}
	}
}

// A tally collects, for each changed path, the state that it has in each attempt of a race, to find attempts
// with the same result.
type tally struct {
	numbers []int
	paths   []touchedPath
	states  map[string]map[int]string // by path and attempt
}

// A touchedPath is a path that an attempt of a race has changed: its new metadata, and the attempt's open
// workspace.
type touchedPath struct {
	path   string
	number int
	new    *diff.Node
	root   *os.File
}

func (t *tally) add(number int, c *compare.Changes) {
	t.numbers = append(t.numbers, number)
	for _, p := range c.Parts {
		if !p.Workspace {
			continue
		}
		for _, ch := range p.Changes {
			if ch.TimeOnly() {
				continue
			}
			t.paths = append(t.paths, touchedPath{ch.Path, number, ch.New, p.New})
			if t.states[ch.Path] == nil {
				t.states[ch.Path] = map[int]string{}
			}
		}
	}
}

// settle groups the attempts of a race by the state that they gave each changed path, and stores the groups
// in to. It reads only files that have the same size in several attempts.
func (t *tally) settle(ctx context.Context, to *Comparison) error {
	to.Paths, to.Identical = []ComparedPath{}, [][]int{}
	sizes := map[string]int{}
	key := func(p touchedPath) string { return fmt.Sprint(p.new.Size, " ", p.path) }
	for _, p := range t.paths {
		if p.new != nil && p.new.Mode.IsRegular() {
			sizes[key(p)]++
		}
	}
	for _, p := range t.paths {
		state, err := describeNode(ctx, p, p.new != nil && sizes[key(p)] > 1)
		if err != nil {
			return err
		}
		t.states[p.path][p.number] = state
	}
	paths := slices.SortedFunc(maps.Keys(t.states), diff.ComparePaths)
	whole := map[int]*strings.Builder{}
	for _, n := range t.numbers {
		whole[n] = new(strings.Builder)
	}
	for _, path := range paths {
		to.Paths = append(to.Paths, ComparedPath{path, groups(t.numbers, t.states[path])})
		for n, state := range t.states[path] {
			fmt.Fprintf(whole[n], "%q %s\n", path, state)
		}
	}
	results := map[int]string{}
	for n, b := range whole {
		results[n] = b.String()
	}
	for _, g := range groups(t.numbers, results) {
		if len(g) > 1 {
			to.Identical = append(to.Identical, g)
		}
	}
	return nil
}

// groups divides the numbers of a race's attempts into groups that have equal states at one path. states has
// the state by number; a number without a state is in no group.
func groups(numbers []int, states map[int]string) [][]int {
	var found [][]int
	place := map[string]int{}
	for _, n := range numbers {
		state, ok := states[n]
		if !ok {
			continue
		}
		i, known := place[state]
		if !known {
			i = len(found)
			place[state], found = i, append(found, nil)
		}
		found[i] = append(found[i], n)
	}
	return found
}

// describeNode returns a text about the file of p, a changed path in one attempt of a race. The texts of two
// attempts are equal exactly if the files differ in times at most. With read, it includes a digest of the
// content.
func describeNode(ctx context.Context, p touchedPath, read bool) (string, error) {
	n := p.new
	if n == nil {
		return "deleted", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d %d %d %q %q", n.Mode, n.UID, n.GID, n.Rdev, n.Target, n.LinkOf)
	for _, name := range slices.Sorted(maps.Keys(n.Xattrs)) {
		fmt.Fprintf(&b, " %q=%q", name, n.Xattrs[name])
	}
	if !n.Mode.IsRegular() {
		return b.String(), nil
	}
	fmt.Fprintf(&b, " %d", n.Size)
	if read {
		sum, err := contentSum(ctx, p.root, p.path)
		if errors.Is(err, errs.ErrDenied) {
			sum, err = fmt.Sprint("unread ", p.number), nil // unread, so equal to no other
		}
		if err != nil {
			return "", err
		}
		b.WriteString(" " + sum)
	}
	return b.String(), nil
}

// contentSum returns a digest of the content of the file path in root, the workspace of an attempt of a race,
// by which attempts are compared.
func contentSum(ctx context.Context, root *os.File, path string) (string, error) {
	l := baseline.RootedReader{Root: root}
	defer l.Close()
	f, err := l.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, buf := sha256.New(), make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}
