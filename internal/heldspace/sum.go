package heldspace

import "slices"

// Each calls add with the sizes in bytes of pieces of disk space that no file of [Other] has, and with the last
// numbered holder of each piece.
func (m *Meter) Each(add func(size int64, last int)) {
	for holder, size := range m.sizes {
		add(size, holder)
	}
	for _, f := range m.linked {
		if !f.stays {
			add(f.size, f.last)
		}
	}
	for _, s := range m.segments() {
		if s.files > 1 && !s.stays {
			add(int64(s.size), s.last)
		}
	}
}

// A segment is a range of the disk between two neighbouring ends of pieces, so that a file has all of it or nothing.
type segment struct {
	size   uint64
	files  int   // how many files have it
	newest *file // the file that was counted last; the pieces of one file follow one another
	last   int   // the last holder of these files
	stays  bool  // [Other] has one of these files
}

// segments returns the segments of the disk that the shared pieces of files occupy. Cost: in proportion to the number of
// segments in all pieces together, which is about that of the pieces where files share whole extents.
func (m *Meter) segments() []segment {
	var ends []uint64
	for _, p := range m.shared {
		ends = append(ends, p.From, p.To)
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	list := make([]segment, max(0, len(ends)-1))
	for i := range list {
		list[i] = segment{size: ends[i+1] - ends[i], last: Other}
	}
	for _, p := range m.shared {
		from, _ := slices.BinarySearch(ends, p.From)
		for i := from; ends[i] < p.To; i++ {
			s := &list[i]
			if s.newest != p.of {
				s.files, s.newest = s.files+1, p.of
			}
			s.last, s.stays = max(s.last, p.of.last), s.stays || p.of.stays
		}
	}
	return list
}
