package logfile

// Mentions are the inodes and names for which the logs of some layers have any record: all that these layers
// may have changed.
type Mentions struct {
	Inodes map[uint64]struct{}
	Names  map[Name]struct{}
}

// A Name is a directory entry of the filesystem that layers make: the directory's inode number and the name.
type Name struct {
	Dir  uint64
	Name string
}

// NewMentions returns empty [Mentions], to which Add adds the inodes and names that the log of a layer
// mentions.
func NewMentions() Mentions {
	return Mentions{map[uint64]struct{}{}, map[Name]struct{}{}}
}

// Add adds the inodes and names that the log of the layer at path records, all that this layer may have
// changed. It skips removed inodes, because their names are recorded too.
func (m *Mentions) Add(path string) error {
	return readRecords(path, func(kind byte, r *Reader) {
		switch kind {
		case KindInode:
			m.Inodes[r.Inode().ID] = struct{}{}
		case KindName:
			dir, name, _ := r.Name()
			m.Names[Name{dir, name}] = struct{}{}
		case KindUnname:
			dir, name := r.Unname()
			m.Names[Name{dir, name}] = struct{}{}
		default:
			r.Skip(kind)
		}
	})
}

// CopiedFrom returns the paths, in the lower, of the files whose content the layer at path has copied: files that were
// changed, and originals. Cost: reading the log. Errors are those of files, and [ErrDamaged].
func CopiedFrom(path string) (lower []string, err error) {
	err = readRecords(path, func(kind byte, r *Reader) {
		switch kind {
		case KindInode:
			if n := r.Inode(); n.LowerPath != "" && n.Layer >= 0 {
				lower = append(lower, n.LowerPath)
			}
		case KindOriginal:
			if o := r.Original(); o.Copy > 0 {
				lower = append(lower, o.Path)
			}
		default:
			r.Skip(kind)
		}
	})
	return lower, err
}
