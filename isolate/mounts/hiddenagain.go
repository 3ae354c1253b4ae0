//go:build linux

package mounts

import (
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// lastHidden holds the layers of the last container that this process began ahead, see [Planner.HidesAgain]. Only a
// process that starts one container after another begins them ahead.
var lastHidden hiddenLayers

// A hiddenLayers holds layers that hide entries of trees, so that the next container that hides the same entries gets
// the same layers: to make and remove them costs 1.5 ms of processor time. The layers are read-only, so containers
// share nothing that they could change. A hiddenLayers is safe for concurrent use.
type hiddenLayers struct {
	mu   sync.Mutex
	last map[string]*hiddenLayer // by the mount's target
}

// A hiddenSource is everything on which the content of a hiddenLayer depends.
type hiddenSource struct {
	hidden  []Hidden // whose directories exist
	parents []parent
	opaque  bool
	images  string
	ids     IDs // to which those of the layer are mapped
}

// equal reports whether two layers that are made from s and from o have the same content.
func (s *hiddenSource) equal(o *hiddenSource) bool {
	return s.opaque == o.opaque && s.images == o.images && s.ids == o.ids &&
		slices.EqualFunc(s.hidden, o.hidden, func(a, b Hidden) bool {
			return a.Dir == b.Dir && a.All == b.All && slices.Equal(a.Absent, b.Absent) && slices.Equal(a.StandIns, b.StandIns) && slices.Equal(a.Except, b.Except)
		}) &&
		slices.EqualFunc(s.parents, o.parents, func(a, b parent) bool {
			return a.path == b.path && a.st.Mode == b.st.Mode && a.st.UID == b.st.UID && a.st.GID == b.st.GID &&
				a.st.ATime == b.st.ATime && a.st.MTime == b.st.MTime && maps.Equal(a.xattrs, b.xattrs)
		})
}

// reuse sets l, the layers for the mount at target, to duplicates of the last ones, if those are made from the same
// source. It reports whether it has.
func (k *hiddenLayers) reuse(target string, l *hiddenLayer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[target]
	if last == nil || !last.source.equal(&l.source) {
		return false
	}
	again, err := last.duplicate()
	if err != nil {
		return false
	}
	l.layer, l.image, l.mapped, l.again = again.layer, again.image, true, true
	return true
}

// keep stores duplicates of l, the layers for the mount at target, in place of the last ones, unless these are the
// same.
func (k *hiddenLayers) keep(target string, l *hiddenLayer) {
	if l.again || l.err != nil || !l.mapped {
		return
	}
	kept, err := l.duplicate()
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = map[string]*hiddenLayer{}
	}
	if last := k.last[target]; last != nil {
		CloseInBackground(last.files()...)
	}
	k.last[target] = kept
}

// duplicate returns a hiddenLayer with the source of l and with duplicates of its descriptors. The caller closes them.
func (l *hiddenLayer) duplicate() (*hiddenLayer, error) {
	d := &hiddenLayer{source: l.source}
	var err error
	if d.layer, err = vfs.Duplicate(l.layer); err == nil && l.image != nil {
		if d.image, err = vfs.Duplicate(l.image); err != nil {
			d.layer.Close()
		}
	}
	return d, err
}

// files returns the descriptors of l.
func (l *hiddenLayer) files() (open []*os.File) {
	for _, m := range []*os.File{l.layer, l.image} {
		if m != nil {
			open = append(open, m)
		}
	}
	return open
}
