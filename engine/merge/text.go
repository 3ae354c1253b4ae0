package merge

import (
	"bytes"
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// TextMax is the maximum size in bytes of a text whose lines are merged, which bounds the memory. A longer
// file, or one with a NUL among its first 8000 bytes, counts as binary.
const TextMax = 8 << 20

func isBinary(data []byte) bool {
	return len(data) > TextMax || diff.IsBinary(data)
}

// Names are the names that the conflict markers in a merged text give the versions of the sandbox, the base
// and the real tree. With an empty name, the marker has no text after it.
type Names struct{ Mine, Base, Real string }

// Text merges the lines of mine and real, which both come from base. It takes both edits where at least one
// unchanged line is between them, and where they are equal. Every other region is a conflict: merged has all
// three versions of it between markers, and conflicts is the number of these regions. Lines end in a line
// feed; a carriage return belongs to its line.
//
// Text agrees with git: the result of a clean merge is that of `git merge-file`, and the result with
// conflicts that of `git merge-file --diff3`. There are two exceptions. A region that several edits of each
// side made equal is no conflict for Text and for `git merge-file`, but is one for --diff3. And after more
// than 256 adjacent edits without a distinctive line, git and Text each accept an edit script that need not
// be the shortest, and these may differ.
//
// Cost: linear for few differences; below N·sqrt(N)·log(N) for N lines. Memory: three times the texts. Text
// does not check for NUL bytes.
func Text(base, mine, real []byte, names Names) (merged []byte, conflicts int) {
	t := newTriple(base, mine, real)
	all := t.merge()
	return t.write(all, names), all.conflicts()
}

// Holds reports whether the text mine already has all changes that lead from base to next: merging next into
// mine changes nothing.
func Holds(base, mine, next []byte) bool {
	merged, conflicts := Text(base, mine, next, Names{})
	return conflicts == 0 && bytes.Equal(merged, mine)
}

// conflicts returns how many of the regions, runs of lines that one or both sides of a merge changed, are in
// conflict.
func (all regions) conflicts() (n int) {
	for _, r := range all {
		if r.from == neither {
			n++
		}
	}
	return n
}

// A source says whose version of a merged file, or of a region of lines in it, the merge takes: the sandbox's
// or the real tree's, or another.
type source int

const (
	neither source = iota // a conflict
	fromMine
	fromReal
	built // in Scratch, by the merge or an answer
)

// A region is a run of lines in which the sandbox's or the real tree's version of a text, or both, differ
// from the base.
type region struct {
	from             source
	base, mine, real run
}

// A run is consecutive lines of one of the texts of a line merge, those with the indexes [start, end).
type run struct{ start, end int }

func (r run) of(lines []string) []string { return lines[r.start:r.end] }

// A triple holds the three texts of a line merge, each as lines and as numbers that are equal for equal
// lines.
type triple struct {
	base, mine, real          []string
	baseIDs, mineIDs, realIDs []int
	kinds                     int // number of distinct lines
	size                      int // of the longest text, in bytes
}

func newTriple(base, mine, real []byte) *triple {
	t := &triple{base: splitLines(string(base)), mine: splitLines(string(mine)), real: splitLines(string(real))}
	n := make(numbering, len(t.base)+len(t.base)/8)
	t.baseIDs, t.mineIDs, t.realIDs = n.number(t.base), n.number(t.mine), n.number(t.real)
	t.kinds, t.size = len(n), max(len(base), len(mine), len(real))
	return t
}

// merge returns the regions of lines that the sandbox or the real tree edited. Each names the side that it
// takes, or is a conflict.
func (t *triple) merge() regions {
	m, r := compare(t.baseIDs, t.mineIDs, t.kinds), compare(t.baseIDs, t.realIDs, t.kinds)
	var all regions
	ahead := struct{ mine, real int }{} // lines by which each side is longer than the base so far
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
		if !t.sameEdit(x, y) {
			all.add(overlap(x, y))
		}
		if x.b >= y.b {
			r, ahead.real = r[1:], y.d-y.b
		}
		if y.b >= x.b {
			m, ahead.mine = m[1:], x.d-x.b
		}
	}
	for i := range all {
		t.dropEqual(&all[i])
	}
	return all
}

// overlap returns the conflict of two edits of the same lines of the base, x of the sandbox and y of the real
// tree. For each of the two it includes the base lines that only the other edit covers.
func overlap(x, y span) region {
	start, end := min(x.a, y.a), max(x.b, y.b)
	own := func(s span) run { return run{s.c - (s.a - start), s.d + (end - s.b)} }
	return region{base: run{start, end}, mine: own(x), real: own(y)}
}

// sameEdit reports whether x, an edit of the sandbox, and y, one of the real tree, replace the same lines by
// the same text.
func (t *triple) sameEdit(x, y span) bool {
	return x.a == y.a && x.b == y.b && slices.Equal(t.mineIDs[x.c:x.d], t.realIDs[y.c:y.d])
}

// dropEqual resolves the conflict of a region of lines if sandbox and real tree have the same lines there.
func (t *triple) dropEqual(r *region) {
	if r.from == neither && slices.Equal(t.mineIDs[r.mine.start:r.mine.end], t.realIDs[r.real.start:r.real.end]) {
		r.from = fromMine
	}
}

type regions []region

// add appends r, a region of lines that one side edited, to the list, or joins it with the last region if
// they touch.
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

// write returns the merged text: the sandbox's lines outside the regions, and in each region those of the
// chosen side, or all three versions between conflict markers.
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
			t.writeMarkers(&out, r, names)
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
