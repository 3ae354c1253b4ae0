//go:build linux

package layer

// Rewrite rewrites the log of the topmost layer, however long it is.
func Rewrite(o Options) error {
	f, err := Open(o)
	if err != nil {
		return err
	}
	f.logging.Lock()
	d := f.layers[f.top()]
	records, err := f.digest(d)
	if err == nil {
		err = d.replaceLog(records)
	}
	f.countLog(d, f.tally())
	f.logging.Unlock()
	if err != nil {
		f.release()
		return err
	}
	return f.Close()
}

// TellsHoles is tellsHoles.
var TellsHoles = tellsHoles

// Paths are those of all layers.
func (f *FS) Paths() (all []string) {
	_ = f.each(func(d *dir, _ place) error { all = append(all, d.path); return nil })
	return all
}

// Cut is the first half of a SetAttr with a size.
func (f *FS) Cut(id uint64, size int64) error {
	n, err := f.node(id)
	if err != nil {
		return err
	}
	return f.truncate(n, size)
}
