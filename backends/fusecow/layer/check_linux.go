package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A Problem is something in a stack of layers that does not fit, and that no killed
// server leaves.
type Problem struct {
	Layer  string // the path of the layer it is in
	What   string // a sentence, with the path in the tree that it is about
	Mended bool
}

func (p Problem) String() string { return p.Layer + ": " + p.What }

// Check says what does not fit in the stack of o: logs that cannot be read to their end
// or name what is not there, content that is missing or longer or shorter than its log
// says, content that nobody names, numbers of names that are wrong. What the next mount
// mends by itself after a crash is none. It writes nothing, unless it is to repair: then
// what can be is mended in the topmost layer, as it says, and those below stay as they
// are. A log that has to be cut is kept as log.damaged beside it, content that nobody names
// as found/INODE, and nothing is written over; a file whose content is missing is empty
// from then on.
//
// Nobody may have the topmost layer open. Cost: as that of [Open], and a stat(2) for each
// content. Errors: unix.EBUSY, those of files. After one, or a crash, the layer can be
// checked again.
func Check(o Options, repair bool) ([]Problem, error) {
	found, err := check(o)
	if err != nil || !repair || len(found) == 0 {
		return found, err
	}
	err = mendAll(o)
	if errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return found, nil // as was found: it cannot be opened
	}
	if err != nil {
		return found, err
	}
	after, err := check(o)
	for i := range found {
		found[i].Mended = err == nil && !slices.Contains(after, found[i])
	}
	for _, p := range after {
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, err
}

// A checker is a table that is being made of logs, and what was found meanwhile.
type checker struct {
	f     *FS
	found []Problem
	// torn is where the log of the top layer has to be cut, or 0.
	torn int64
}

func check(o Options) ([]Problem, error) {
	c, err := checkUpTo(o)
	if c == nil {
		return nil, err
	}
	defer c.f.release()
	if err != nil {
		return nil, err
	}
	c.names(o.Layers[len(o.Layers)-1])
	return c.found, nil
}

func checkUpTo(o Options) (*checker, error) {
	top := o.Layers[len(o.Layers)-1]
	if IsLayer(top) {
		_, release, err := Hold(top)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	o.ReadOnly = true
	f, err := openRoot(o)
	if err != nil {
		return nil, err
	}
	c := &checker{f: f}
	for i, path := range o.Layers {
		if err := c.layer(o.place(i), path, i == len(o.Layers)-1); err != nil {
			return c, fmt.Errorf("checking the layer %s: %w", path, err)
		}
	}
	return c, nil
}

func (c *checker) cutAt(at int64, top bool) {
	if top {
		c.torn = at
	}
}

func (c *checker) add(layer, what string, args ...any) {
	c.found = append(c.found, Problem{Layer: layer, What: fmt.Sprintf(what, args...)})
}

// layer reads one and looks at its content.
func (c *checker) layer(at place, path string, top bool) error {
	d, err := openDir(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		c.add(path, "it is not there")
		return nil
	}
	if err != nil {
		return err
	}
	c.f.push(d, at)
	clean, err := c.log(d, top)
	if err != nil {
		return err
	}
	return c.contents(d, clean, top)
}

// log does again what a log tells, up to where it makes no sense, and says whether the
// layer was closed in order.
func (c *checker) log(d *dir, top bool) (clean bool, err error) {
	all, err := d.readLog()
	if err != nil {
		return false, err
	}
	if top && len(all) < len(magic) && strings.HasPrefix(magic, string(all)) {
		return true, nil // it was made just now
	}
	at := int64(len(magic))
	origins := map[string]*origin{".": c.f.root.from}
	nonsense := false
	err = d.frames(func(records []byte) error {
		clean = bytes.Equal(records, []byte{recordClean})
		r := &reader{rest: records}
		for len(r.rest) > 0 {
			if !c.f.replayOne(r, origins) {
				nonsense = true
				return ErrDamaged
			}
		}
		at += 8 + int64(len(records))
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, ErrDamaged):
		return false, err
	case err != nil && !bytes.HasPrefix(all, []byte(magic)):
		c.add(d.path, "its log does not begin as one")
		return false, nil
	case nonsense:
		c.add(d.path, "its log makes no sense from byte %d of %d on", at, len(all))
		c.cutAt(at, top)
		return false, nil
	}
	rest := all[at:]
	switch {
	case len(rest) == 0:
		return (clean || at == int64(len(magic))) && !d.moded, nil
	case err != nil, len(rest) >= 8 && int64(binary.LittleEndian.Uint32(rest)) <= int64(len(rest)-8):
		c.add(d.path, "its log is damaged from byte %d of %d on", at, len(all))
		c.cutAt(at, top)
	case !top:
		c.add(d.path, "its log ends in the middle of a frame, at byte %d of %d", at, len(all))
	}
	return false, nil
}

// contents compares what a layer has with what the log tells. What was being removed
// stays where the layer was frozen; where it was not closed, the next mount sees to all.
func (c *checker) contents(d *dir, clean, top bool) error {
	there := map[uint64]bool{}
	var atlas *atlas
	name := func(n *node) string {
		if atlas == nil {
			atlas = newAtlas(c.f)
		}
		if all := atlas.paths(n); len(all) > 0 {
			return slices.Min(all) // the same whenever it is asked
		}
		return fmt.Sprintf("node %d", n.id)
	}
	err := d.contents(func(id uint64, st *kernel.Stat) error {
		n := c.f.nodes[id]
		if n == nil || !n.regular() || !c.f.has(d, n.place) {
			if clean && top {
				c.add(d.path, "it has content that nobody names: %s", sharded(id))
			}
			return nil
		}
		if n.parts != nil && fileOf(st) != n.parts.own {
			c.add(d.path, "the content of %s is in another file than it was written to: what that has no holes for any more cannot be told", name(n))
		}
		if there[id] = true; clean && st.Size != n.size {
			c.add(d.path, "%s has %d bytes, and its log says %d", name(n), st.Size, n.size)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for id, n := range c.f.nodes {
		if n.regular() && c.f.has(d, n.place) && !there[id] {
			c.add(d.path, "the content of %s is missing", name(n))
		}
	}
	return nil
}

// names compares how many names nodes have with how many they should.
func (c *checker) names(top string) {
	for n, have := range c.f.wrongNames() {
		c.add(top, "node %d has %d names, and its log says %d", n.id, have, n.nlink)
	}
}

// wrongNames are the nodes that have another number of names than they say, as far as
// that is known: the tree below may have names that nobody asked for.
func (f *FS) wrongNames() map[*node]int {
	have := map[*node]int{}
	for _, dir := range f.nodes {
		for _, n := range dir.entries {
			if n != nil {
				have[n]++
			}
		}
	}
	wrong := map[*node]int{}
	for _, n := range f.nodes {
		want := int(n.nlink)
		if n.isDir() {
			want = 1
		}
		if n != f.root && (n.from == nil && have[n] != want || have[n] > want) {
			wrong[n] = have[n]
		}
	}
	return wrong
}

// mendAll mends the topmost layer.
func mendAll(o Options) error {
	c, err := checkUpTo(o)
	if c != nil {
		c.f.release()
	}
	if err != nil {
		return err
	}
	o.repair, o.cut = true, c.torn
	f, err := Open(o)
	if err != nil {
		return err
	}
	f.mu.Lock()
	for n, have := range f.wrongNames() {
		if have > 0 && !n.isDir() { // what has none is not thrown away
			n.nlink = uint32(have)
			f.mark(n)
		}
	}
	f.mu.Unlock()
	return f.Close()
}
