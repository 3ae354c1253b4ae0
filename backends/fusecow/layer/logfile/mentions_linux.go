package logfile

// Mentions are the inodes and names that some logs record, whatever they say of them.
type Mentions struct {
	Inodes map[uint64]struct{}
	Names  map[Name]struct{}
}

// A Name is a name in a directory.
type Name struct {
	Dir  uint64
	Name string
}

// NewMentions returns empty Mentions.
func NewMentions() Mentions {
	return Mentions{map[uint64]struct{}{}, map[Name]struct{}{}}
}

// Add adds those of the log of the layer at path. A gone inode needs no entry: it has also lost its names, which
// are recorded.
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
