package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Problem is one inconsistency of layer directories, in which a filesystem stores its changes, found by
// [Check]. Killing the process that serves the filesystem does not cause any.
type Problem struct {
	Layer  string // path of the layer
	What   string // a sentence that names the path in the tree
	Mended bool
}

// Check looks for damage in the layer directories that o names: logs that are damaged or refer to missing
// inodes, content files that are missing or differ in size from the log, content files that no inode refers
// to, and wrong link counts. It does not report what the next mount recovers after a crash anyway.
//
// Without repair Check writes nothing. With repair it repairs what it can in the top layer, marks those
// problems as mended, and leaves the layers below alone. It never overwrites anything: it copies a log to
// log.damaged before truncating it, and moves content without an inode to found/INODE. A file whose content
// is missing becomes empty.
//
// No process may have the top layer open. Cost: that of [Open], and a stat(2) per content file. Errors:
// unix.EBUSY, those of files. After an error or a crash Check can be repeated.
func Check(o Options, repair bool) ([]Problem, error) {
	found, err := check(o)
	if err != nil || !repair || len(found) == 0 {
		return found, err
	}
	err = repairTop(o)
	if errors.Is(err, logfile.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return found, nil // unrepaired: the layers cannot be opened
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

// A checker is the state of one [Check]: it replays the logs of the layers into the inode table of f.
type checker struct {
	f     *FS
	found []Problem
	// cut is the offset at which the damaged log of the top layer has to be truncated, or 0.
	cut int64
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
	c.checkLinkCounts(o.Layers[len(o.Layers)-1])
	return c.found, nil
}

func checkUpTo(o Options) (*checker, error) {
	top := o.Layers[len(o.Layers)-1]
	if logfile.IsLayer(top) {
		_, release, err := logfile.TryLock(top)
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
		if err := c.layer(o.stack().Index(i), path, i == len(o.Layers)-1); err != nil {
			return c, fmt.Errorf("checking the layer %s: %w", path, err)
		}
	}
	return c, nil
}

func (c *checker) cutAt(at int64, top bool) {
	if top {
		c.cut = at
	}
}

func (c *checker) add(layer, what string, args ...any) {
	c.found = append(c.found, Problem{Layer: layer, What: fmt.Sprintf(what, args...)})
}

// layer opens the layer directory at path and adds its problems to found. at is the index of the layer in its
// stack; top is set for the topmost layer.
func (c *checker) layer(at logfile.Index, path string, top bool) error {
	l, err := logfile.Open(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		c.add(path, "the layer is missing")
		return nil
	}
	if err != nil {
		return err
	}
	d := &stackedLayer{Layer: l}
	c.f.push(d, at)
	clean, err := c.log(d, top)
	if err != nil {
		return err
	}
	return c.checkContents(d, clean, top)
}

// log replays the log of the layer d up to the first invalid record, and reports whether the layer is clean:
// whether its last server closed it properly. top is set for the topmost layer, whose log may be torn.
func (c *checker) log(d *stackedLayer, top bool) (clean bool, err error) {
	all, err := d.ReadLog()
	if err != nil {
		return false, err
	}
	if top && len(all) < len(logfile.Magic) && strings.HasPrefix(logfile.Magic, string(all)) {
		return true, nil // it was just created
	}
	at := int64(len(logfile.Magic))
	refs := map[string]*lower.Ref{".": c.f.root.lower}
	nonsense := false
	err = d.Frames(func(records []byte) error {
		clean = bytes.Equal(records, []byte{logfile.KindClean})
		for r := logfile.NewReader(records); r.More(); {
			if !c.f.replayRecord(r, refs) {
				nonsense = true
				return logfile.ErrDamaged
			}
		}
		at += 8 + int64(len(records))
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, logfile.ErrDamaged):
		return false, err
	case err != nil && !bytes.HasPrefix(all, []byte(logfile.Magic)):
		c.add(d.Path, "the log does not begin with its magic word")
		return false, nil
	case nonsense:
		c.add(d.Path, "the log has an invalid record at byte %d of %d", at, len(all))
		c.cutAt(at, top)
		return false, nil
	}
	rest := all[at:]
	switch {
	case len(rest) == 0:
		return (clean || at == int64(len(logfile.Magic))) && !d.UncleanMode, nil
	case err != nil, len(rest) >= 8 && int64(binary.LittleEndian.Uint32(rest)) <= int64(len(rest)-8):
		c.add(d.Path, "the log is damaged from byte %d of %d on", at, len(all))
		c.cutAt(at, top)
	case !top:
		c.add(d.Path, "the log ends in the middle of a frame, at byte %d of %d", at, len(all))
	}
	return false, nil
}

// checkContents adds to c's problems how the files with changed content in the layer d differ from d's log. A
// sparse one shows the lower file in its holes, which a copy to another inode may have filled. A frozen layer
// (top is not set) may have content that was about to be deleted. If the layer is not clean (its server was
// killed), only missing and copied content files are problems: the next mount recovers the rest.
func (c *checker) checkContents(d *stackedLayer, clean, top bool) error {
	there := map[uint64]bool{}
	var index *pathIndex
	name := func(n *inode) string {
		if index == nil {
			index = newPathIndex(c.f)
		}
		if all := index.paths(n); len(all) > 0 {
			return slices.Min(all) // the same one at each call
		}
		return fmt.Sprintf("node %d", n.id)
	}
	err := d.Contents(func(id uint64, st *vfs.Stat) error {
		n := c.f.inodes[id]
		if n == nil || !n.regular() || !c.f.isLayerAt(d, n.layer) {
			if clean && top {
				c.add(d.Path, "content without an inode: %s", logfile.ContentPath(id))
			}
			return nil
		}
		if n.sparse != nil && logfile.FileIdentity(st) != n.sparse.Own {
			c.add(d.Path, "the content of %s was copied to another file, which may hide lower content", name(n))
		}
		if there[id] = true; clean && st.Size != n.size {
			c.add(d.Path, "%s has %d bytes, but the log says %d", name(n), st.Size, n.size)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for id, n := range c.f.inodes {
		if n.regular() && c.f.isLayerAt(d, n.layer) && !there[id] {
			c.add(d.Path, "the content of %s is missing", name(n))
		}
	}
	return nil
}

// checkLinkCounts reports inodes whose link count differs from the number of their names in the tree. Such a
// problem is reported for the layer at path top.
func (c *checker) checkLinkCounts(top string) {
	for n, have := range c.f.wrongLinkCounts() {
		c.add(top, "inode %d has %d names, but the log says %d", n.id, have, n.nlink)
	}
}

// wrongLinkCounts returns the inodes whose link count is wrong, each with the number of names that it really
// has. A lower inode with too few names is not wrong: the others may never have been looked up.
func (f *FS) wrongLinkCounts() map[*inode]int {
	have := map[*inode]int{}
	for _, dir := range f.inodes {
		for _, n := range dir.entries {
			if n != nil {
				have[n]++
			}
		}
	}
	wrong := map[*inode]int{}
	for _, n := range f.inodes {
		want := int(n.nlink)
		if n.isDir() {
			want = 1
		}
		if n != f.root && (n.lower == nil && have[n] != want || have[n] > want) {
			wrong[n] = have[n]
		}
	}
	return wrong
}

// repairTop repairs the top layer for [Check]: it recovers and truncates the log, and corrects link counts.
func repairTop(o Options) error {
	c, err := checkUpTo(o)
	if c != nil {
		c.f.release()
	}
	if err != nil {
		return err
	}
	o.repair, o.cut = true, c.cut
	f, err := Open(o)
	if err != nil {
		return err
	}
	f.mu.Lock()
	for n, have := range f.wrongLinkCounts() {
		if have > 0 && !n.isDir() { // an inode without any name is not thrown away
			n.nlink = uint32(have)
			f.markDirty(n)
		}
	}
	f.mu.Unlock()
	return f.Close()
}
