package merge

import (
	"bytes"
	"slices"
)

// TextMax is the length, in bytes, up to which a file can be a text; a longer
// one, or one with a NUL among its first 8000 bytes, is binary.
const TextMax = 8 << 20

const sniffed = 8000 // git's own bound

func isBinary(data []byte) bool {
	return len(data) > TextMax || bytes.IndexByte(data[:min(len(data), sniffed)], 0) >= 0
}

// Names name the three versions in conflict marks. Where one is empty, its mark
// stands alone.
type Names struct{ Mine, Base, Real string }

// Text merges lines, three-way. Edits that touch no line of the other side's, and
// are not next to one, are both taken; so are edits that are the same on both
// sides. Other places are conflicts: merged holds all three versions of them
// between marks, and conflicts is how many there are. A line is what a line feed
// ends; carriage returns belong to it.
//
// Where git says anything, it says the same: clean or not as `git merge-file`
// does, and then the same bytes; with conflicts, the bytes of `git merge-file
// --diff3`. Two differences are meant. A place that several edits of each side
// have made the same is no conflict here, nor is it for `git merge-file`, but it
// is one with --diff3. And where more than 256 edits follow one another with
// nothing in between that tells them apart, git takes a short way that need not
// be the shortest, and so does Text, another one.
//
// Cost: linear where little differs, and for N lines of which D differ below
// N·sqrt(N)·log(N). Memory: three times the texts. It does not look for NUL bytes.
func Text(base, mine, real []byte, names Names) (merged []byte, conflicts int) {
	t := newTriple(base, mine, real)
	all := t.merge()
	return t.write(all, names), all.conflicts()
}

// conflicts counts them.
func (all regions) conflicts() (n int) {
	for _, r := range all {
		if r.from == neither {
			n++
		}
	}
	return n
}

// A source says which side a region, or a file's content, is taken from.
type source int

const (
	neither source = iota // it is a conflict
	fromMine
	fromReal
	built // in Scratch
)

// A region is a place where the sides differ from the base, as lines of each.
type region struct {
	from             source
	base, mine, real run
}

// A run is the lines [start, end).
type run struct{ start, end int }

func (r run) of(lines []string) []string { return lines[r.start:r.end] }

// A triple is three texts, as lines and as numbers.
type triple struct {
	base, mine, real          []string
	baseIDs, mineIDs, realIDs []int
	kinds                     int // of lines
	size                      int // of the longest, in bytes
}

func newTriple(base, mine, real []byte) *triple {
	t := &triple{base: splitLines(string(base)), mine: splitLines(string(mine)), real: splitLines(string(real))}
	n := make(numbering, len(t.base)+len(t.base)/8)
	t.baseIDs, t.mineIDs, t.realIDs = n.number(t.base), n.number(t.mine), n.number(t.real)
	t.kinds, t.size = len(n), max(len(base), len(mine), len(real))
	return t
}

// merge lays the edits of both sides side by side.
func (t *triple) merge() regions {
	m, r := compare(t.baseIDs, t.mineIDs, t.kinds), compare(t.baseIDs, t.realIDs, t.kinds)
	var all regions
	ahead := struct{ mine, real int }{} // how much longer each is than base, so far
	for len(m) > 0 || len(r) > 0 {
		switch {
		case len(r) == 0 || len(m) > 0 && m[0].b < r[0].a:
			s := m[0]
			all.add(region{fromMine, run{s.a, s.b}, run{s.c, s.d}, run{s.a + ahead.real, s.b + ahead.real}})
			m, ahead.mine = m[1:], s.d-s.b
			continue
		case len(m) == 0 || r[0].b < m[0].a:
			s := r[0]
			all.add(region{fromReal, run{s.a, s.b}, run{s.a + ahead.mine, s.b + ahead.mine}, run{s.c, s.d}})
			r, ahead.real = r[1:], s.d-s.b
			continue
		}
		x, y := m[0], r[0]
		if !t.alike(x, y) {
			all.add(meeting(x, y))
		}
		if x.b >= y.b {
			r, ahead.real = r[1:], y.d-y.b
		}
		if y.b >= x.b {
			m, ahead.mine = m[1:], x.d-x.b
		}
	}
	for i := range all {
		t.settle(&all[i])
	}
	return all
}

// meeting is the region of two edits that touch, in which each side has its own and
// as much of the base around it as the other one reaches.
func meeting(x, y span) region {
	start, end := min(x.a, y.a), max(x.b, y.b)
	own := func(s span) run { return run{s.c - (s.a - start), s.d + (end - s.b)} }
	return region{base: run{start, end}, mine: own(x), real: own(y)}
}

// alike reports whether both sides have made the same edit.
func (t *triple) alike(x, y span) bool {
	return x.a == y.a && x.b == y.b && slices.Equal(t.mineIDs[x.c:x.d], t.realIDs[y.c:y.d])
}

// settle takes a conflict back that both sides have ended alike.
func (t *triple) settle(r *region) {
	if r.from == neither && slices.Equal(t.mineIDs[r.mine.start:r.mine.end], t.realIDs[r.real.start:r.real.end]) {
		r.from = fromMine
	}
}

type regions []region

// add appends a region, or joins it to one that it touches.
func (all *regions) add(r region) {
	if len(*all) > 0 {
		last := &(*all)[len(*all)-1]
		if r.mine.start <= last.mine.end || r.real.start <= last.real.end {
			if last.from != r.from {
				last.from = neither
			}
			last.base.end, last.mine.end, last.real.end = r.base.end, r.mine.end, r.real.end
			return
		}
	}
	*all = append(*all, r)
}

// write gives the merged text. What no region is about is taken from mine: it is
// the same there as on the other sides, or has been made so by both.
func (t *triple) write(all regions, names Names) []byte {
	var out bytes.Buffer
	out.Grow(t.size)
	at := 0
	for _, r := range all {
		writeLines(&out, t.mine[at:r.mine.start])
		switch r.from {
		case fromMine:
			writeLines(&out, r.mine.of(t.mine))
		case fromReal:
			writeLines(&out, r.real.of(t.real))
		default:
			t.mark(&out, r, names)
		}
		at = r.mine.end
	}
	writeLines(&out, t.mine[at:])
	return out.Bytes()
}

func writeLines(out *bytes.Buffer, lines []string) {
	for _, l := range lines {
		out.WriteString(l)
	}
}
