//go:build linux

package layer

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
)

// Rewrite compacts the log of the top layer, whatever its length.
func Rewrite(o Options) error {
	f, err := Open(o)
	if err != nil {
		return err
	}
	f.logMu.Lock()
	d := f.layers[f.top()]
	records, err := f.digestLog(d)
	if err == nil {
		err = d.Replace(records)
	}
	f.chargeLog(d, f.topSlot())
	f.logMu.Unlock()
	if err != nil {
		f.release()
		return err
	}
	return f.Close()
}

// Paths returns the paths of all layers.
func (f *FS) Paths() (all []string) {
	_ = f.eachLayer(func(d *stackedLayer, _ logfile.Index) error { all = append(all, d.Path); return nil })
	return all
}

// Cut truncates a file without updating its times: the first half of a SetAttr with a size.
func (f *FS) Cut(id uint64, size int64) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	return f.truncate(n, size)
}

// TopUsage returns the usage of the top layer.
func (f *FS) TopUsage() quota.Usage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.topSlot().Usage()
}
