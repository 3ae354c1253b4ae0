//go:build linux

package trial_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"golang.org/x/sys/unix"
)

// TestFilesMatchAModel does random operations on files of the mount and of a plain directory, with two models
// at once, and compares both with the models after each operation. Layers are frozen meanwhile; between rounds
// the tree is saved, rolled back, remounted, and its server killed.
//
// SNAPFS_FSX_SEED and SNAPFS_FSX_OPS set the seed and the number of operations. A difference prints both, and
// the operations that concern it. The operations run concurrently, so a seed gives the same operations but not
// the same timing. `make fsx` runs a million of them for each of some seeds.
func TestFilesMatchAModel(t *testing.T) {
	usual := uint64(10_000)
	if testing.Short() {
		usual = 3000
	}
	seed, most := number(t, "SNAPFS_FSX_SEED", uint64(time.Now().Unix())), number(t, "SNAPFS_FSX_OPS", usual)
	t.Logf("SNAPFS_FSX_SEED=%d SNAPFS_FSX_OPS=%d", seed, most)
	x := newExerciser(newHost(t), seed)
	if x.whole = 1; x.rnd.IntN(3) == 0 { // otherwise nothing is copied whole
		x.whole = 64 << 20
	}
	defer x.closeAll()
	x.up()
	start := time.Now()
	for x.done() < int(most) {
		if err := x.round(); err != nil {
			t.Fatalf("SNAPFS_FSX_SEED=%d, layers %d: %v", seed, len(x.layers), err)
		}
	}
	x.closeAll()
	x.down()
	t.Logf("%d operations, %v, in %v", x.done(), x.counts, time.Since(start).Round(time.Millisecond))
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// An exerciser is a mount with its models.
type exerciser struct {
	*host
	rnd    *rand.Rand
	models []*model
	states []state
	counts map[string]int // number of each action between rounds
	merged []string       // replaced layers that the server may have open
}

// A state is a stack of frozen layers, with its content.
type state struct {
	stack
	models []saved
}

const (
	models     = 2
	mostStates = 6
	mostLayers = 14
)

func newExerciser(h *host, seed uint64) *exerciser {
	h.Helper()
	x := &exerciser{host: h, rnd: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
	first := state{}
	for i := range models {
		lower, disk := fmt.Sprintf("%s/m%d", h.lower, i), fmt.Sprintf("%s/plain%d", h.dir, i)
		m := newModel(seed*models+uint64(i), [2]string{lower, disk})
		for side := range m.dirs {
			h.must(errors.Join(os.Mkdir(m.dirs[side], 0o755), os.Mkdir(m.path(side, "x"), 0o755), os.Mkdir(m.path(side, "y"), 0o755)))
		}
		m.populate()
		h.must(errors.Join(m.write(tried), m.write(plain)))
		m.settled()
		m.dirs[tried] = fmt.Sprintf("%s/m%d", h.mount, i)
		x.models, first.models = append(x.models, m), append(first.models, m.save())
	}
	x.states = []state{first}
	return x
}

func (x *exerciser) done() (n int) {
	for _, m := range x.models {
		n += m.done
	}
	return n
}

func (x *exerciser) closeAll() {
	for _, m := range x.models {
		m.closeAll()
	}
}

// each calls do with all models concurrently.
func (x *exerciser) each(do func(m *model) error) error {
	errs := make([]error, len(x.models))
	var all sync.WaitGroup
	for i, m := range x.models {
		all.Go(func() {
			if errs[i] = do(m); errs[i] != nil {
				errs[i] = errors.New(m.printHistory(errs[i]))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// round does some operations, compares, and does one action to the whole tree.
func (x *exerciser) round() error {
	steps, freeze := 50+x.rnd.IntN(900), x.rnd.IntN(4) == 0
	all, total := ops(), 0
	for _, o := range all {
		total += o.weight
	}
	frozen := make(chan struct{})
	go func() {
		defer close(frozen)
		if freeze {
			x.freeze()
		}
	}()
	err := x.each(func(m *model) error {
		for range steps {
			if err := m.step(all, total); err != nil {
				return err
			}
		}
		return m.compare()
	})
	<-frozen
	if freeze {
		for _, m := range x.models {
			m.loosen()
		}
	}
	if err != nil {
		return err
	}
	return x.between()
}

// loosen allows unsynced files to be as they were when a layer was frozen.
func (m *model) loosen() {
	m.note(0, 0, 0, "a freeze meanwhile")
	for _, f := range m.files {
		f.loose = f.loose || f.touched
	}
}

// between does one action to the whole tree, and compares.
func (x *exerciser) between() error {
	todo := []struct {
		what string
		do   func() error
	}{
		{"saved", x.freezeSaved},
		{"saved", x.freezeSaved},
		{"rolled back", func() error { return x.rollBack(false) }},
		{"rolled back while mounted", func() error { return x.rollBack(true) }},
		{"merged", x.merge},
		{"mounted anew", x.mountAnew},
		{"crashed when synced", x.crashSynced},
		{"crashed", x.crash},
		{"went on", func() error { return nil }},
		{"went on", func() error { return nil }},
	}
	next := todo[x.rnd.IntN(len(todo))]
	if len(x.layers) > mostLayers {
		next = todo[2+x.rnd.IntN(3)]
	}
	x.counts[next.what]++
	for _, m := range x.models {
		m.note(0, 0, 0, next.what)
	}
	if err := next.do(); err != nil {
		return fmt.Errorf("%s: %w", next.what, err)
	}
	if err := x.each((*model).compare); err != nil {
		return fmt.Errorf("after it %s: %w", next.what, err)
	}
	return nil
}

// freezeSaved freezes everything as a state to return to.
func (x *exerciser) freezeSaved() error {
	if err := x.syncMount(); err != nil {
		return err
	}
	s := state{stack: x.stack}
	for _, m := range x.models {
		s.models = append(s.models, m.save())
	}
	x.freeze()
	for _, m := range x.models {
		m.settled()
	}
	if x.states = append(x.states, s); len(x.states) > mostStates {
		x.states = slices.Delete(x.states, 1, 2)
	}
	return nil
}

// syncMount makes the kernel write back mapped pages.
func (x *exerciser) syncMount() error {
	fd, err := unix.Open(x.mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, m := range x.models {
		for _, f := range m.files {
			f.mapped = false
		}
	}
	return unix.Syncfs(fd)
}

func (x *exerciser) mountAnew() error {
	x.closeAll()
	x.down()
	x.up()
	for _, m := range x.models {
		m.settled()
	}
	return nil
}

// rollBack returns to a saved state and deletes layers that no state needs. If mounted, with a warm kernel
// cache, but without open files, which the models know only in the present state.
func (x *exerciser) rollBack(mounted bool) error {
	x.closeAll()
	if !mounted {
		x.down()
	}
	s := x.states[x.rnd.IntN(len(x.states))]
	if len(x.layers) > mostLayers {
		s = x.states[0]
	}
	old, next := slices.Concat(x.layers, x.merged), s.above(x.nextLayer())
	if mounted {
		x.goOn(next)
	}
	x.stack, x.merged = next, nil
	for _, path := range old {
		if !slices.Contains(x.layers, path) && !slices.ContainsFunc(x.states, func(s state) bool { return slices.Contains(s.layers, path) }) {
			x.must(os.RemoveAll(path))
		}
	}
	if !mounted {
		x.up()
	}
	for i, m := range x.models {
		if err := m.restore(s.models[i]); err != nil {
			return err
		}
	}
	return nil
}

// merge merges layers between two states while they are mounted.
func (x *exerciser) merge() error {
	for range 50 {
		from := x.rnd.IntN(len(x.layers))
		to := from + 2 + x.rnd.IntN(4)
		if to < len(x.layers) && x.isOne(from, to) { // the last layer is being written to
			return x.mergeOne(from, to)
		}
	}
	x.counts["had nothing to merge"]++
	return nil
}

// isOne reports whether no state ends or branches between some layers.
func (x *exerciser) isOne(from, to int) bool {
	old := x.layers[from:to]
	return !slices.ContainsFunc(x.states, func(s state) bool {
		n := len(s.layers)
		return n > from && s.layers[from] == old[0] && (n < to || !slices.Equal(s.layers[from:to], old))
	})
}

func (x *exerciser) mergeOne(from, to int) error {
	old := slices.Clone(x.layers[from:to])
	into := x.nextLayer()
	err := logfile.Merge(logfile.Stack{Layers: x.layers, Indexes: x.indexes}, from, to, into)
	if errors.Is(err, logfile.ErrNotMergeable) {
		x.counts["not mergeable"]++
		return os.RemoveAll(into)
	}
	if err != nil {
		return err
	}
	x.merged = append(x.merged, old...)
	x.replace(old, into)
	for i := range x.states {
		x.states[i].replace(old, into)
	}
	return nil
}

// replace replaces layers in the stack by a merged one.
func (s *stack) replace(old []string, layer string) {
	from := slices.Index(s.layers, old[0])
	if from < 0 {
		return
	}
	var next stack
	for i, l := range s.layers {
		switch at := i - from; {
		case at >= 0 && at < len(old)-1:
			continue
		case at == len(old)-1:
			l = layer
		}
		next.layers, next.indexes = append(next.layers, l), append(next.indexes, s.index(i))
	}
	*s = next
}

// crashSynced kills the server after a sync: everything is there.
func (x *exerciser) crashSynced() error {
	err := x.syncMount()
	for _, m := range x.models {
		if err == nil {
			err = m.create(nil)
		}
		if err == nil && len(m.files) > 0 {
			err = m.fsync(m.files[0])
		}
	}
	if err != nil {
		return err
	}
	x.kill()
	x.closeAll()
	x.up()
	return nil
}

// crash kills the server: some of what was not synced is there.
func (x *exerciser) crash() error {
	x.kill()
	x.closeAll()
	x.up()
	return x.each((*model).adopt)
}

// adopt takes over into the model what a crash has left.
func (m *model) adopt() error {
	found, err := m.look()
	if err != nil {
		return err
	}
	for _, name := range slots() {
		n, there := found.names[name]
		f := m.before[name]
		if m.renamed[name] {
			f = m.names[name]
		}
		if !m.renamed[name] && there != (f != nil) {
			return fmt.Errorf("%s was synced, and is there: %t", name, there)
		}
		if m.renamed[name] || f == nil {
			continue
		}
		err := m.differ(f, 0, found.data[n], f.data, name+" after a crash")
		if err != nil && f.touched && (f.loose || m.differ(f, 0, found.data[n], f.synced, "") == nil) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return m.restore(found)
}

// look reads all files of the mount, and counts their names.
func (m *model) look() (saved, error) {
	s, numbers, links := saved{map[string]int{}, map[int][]byte{}}, map[uint64]int{}, map[int]int{}
	for _, name := range slots() {
		var st unix.Stat_t
		err := unix.Lstat(m.path(tried, name), &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return s, err
		}
		n, ok := numbers[st.Ino]
		if !ok {
			m.next++
			n = m.next
			numbers[st.Ino], links[n] = n, int(st.Nlink)
			if s.data[n], err = os.ReadFile(m.path(tried, name)); err != nil {
				return s, err
			}
		}
		s.names[name] = n
		links[n]--
	}
	for n, left := range links {
		if left != 0 {
			return s, fmt.Errorf("after a crash file %d has %d names more than there are: %v", n, left, s.names)
		}
	}
	return s, nil
}
