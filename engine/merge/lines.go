package merge

import (
	"math"
	"strings"

	zdiff "znkr.io/diff"
)

// Lines are compared as git does, so that a merge agrees with git. Where a line has
// several possible partners, the choice decides whether two edits touch, and programs
// choose differently. The choices here follow git 2.39, xdiff/xdiffi.c and
// xdiff/xprepare.c: which lines the search leaves out, which of two shortest edit
// scripts wins (E. Myers, "An O(ND) difference algorithm", 1986), and to which position
// a group of changed lines slides.
//
// Where the edit script gets long, git stops looking for the shortest one. There this
// package uses znkr.io/diff, which may find another script than git does.

// A span is a run of lines in which two texts of a merge differ: the lines [a, b) of the old text became the
// lines [c, d) of the new one.
type span struct{ a, b, c, d int }

// A numbering maps each line of the texts of a merge to a number, equal lines to equal numbers, so that the
// comparison of texts compares integers.
type numbering map[string]int

func (n numbering) number(lines []string) []int {
	ids := make([]int, len(lines))
	for i, l := range lines {
		id, ok := n[l]
		if !ok {
			id = len(n)
			n[l] = id
		}
		ids[i] = id
	}
	return ids
}

// splitLines splits a text to be merged into lines, each with its line feed. Only the last line may lack one.
func splitLines(text string) []string {
	lines := make([]string, 0, strings.Count(text, "\n")+1)
	for len(text) > 0 {
		end := strings.IndexByte(text, '\n') + 1
		if end == 0 {
			end = len(text)
		}
		lines = append(lines, text[:end])
		text = text[end:]
	}
	return lines
}

// A file is one of two texts that a merge compares by lines: a number for each line, and which lines have no
// partner in the other text.
type file struct {
	ids     []int
	changed []bool // has no partner on the other side
}

// compare returns the spans in which two texts differ, in order; no two touch. old and new are the texts as
// line numbers, which are less than kinds.
func compare(old, new []int, kinds int) []span {
	a := &file{old, make([]bool, len(old))}
	b := &file{new, make([]bool, len(new))}
	matchLines(a, b, kinds)
	slide(a, b)
	slide(b, a)
	var spans []span
	for i, j := 0, 0; i < len(old) || j < len(new); {
		s := span{i, i, j, j}
		for ; i < len(old) && a.changed[i]; i++ {
			s.b++
		}
		for ; j < len(new) && b.changed[j]; j++ {
			s.d++
		}
		if s.a < s.b || s.c < s.d {
			spans = append(spans, s)
		}
		i, j = min(i+1, len(old)), min(j+1, len(new))
	}
	return spans
}

// matchLines compares two texts by lines, for a merge, and marks the lines without a partner in the other
// text as changed. kinds is greater than each line's number.
func matchLines(a, b *file, kinds int) {
	head, tail := 0, 0
	for head < len(a.ids) && head < len(b.ids) && a.ids[head] == b.ids[head] {
		head++
	}
	for shorter := min(len(a.ids), len(b.ids)); tail < shorter-head && a.ids[len(a.ids)-1-tail] == b.ids[len(b.ids)-1-tail]; {
		tail++
	}
	counts := make([]int, kinds)
	w := &lineSearch{x: a.candidates(b, counts, head, tail), y: b.candidates(a, counts, head, tail)}
	w.search(0, len(w.x.ids), 0, len(w.y.ids))
}

// A candidateLines holds those lines of one of the two compared texts that take part in the search for the
// shortest edit script (list of changed lines).
type candidateLines struct {
	*file
	ids []int
	at  []int // index of each in the file
}

func (s *candidateLines) markChanged(from, to int) {
	for _, i := range s.at[from:to] {
		s.changed[i] = true
	}
}

// commonMax is how often a line may occur in the other text before it counts as common, so that the search
// for an edit script leaves it out. git has the same bound.
const commonMax = 1024

// A rarity says how often a line occurs in the other text, as far as the search for an edit script needs it:
// never (absent), rarely, or often (common).
type rarity uint8

const (
	absent rarity = iota // not in the other file: needs no search
	rare
	common // so often that a match means little
)

// candidates returns the lines that take part in the search for an edit script: those after the head and
// before the tail lines that are equal in both texts. It leaves out and marks as changed absent lines, and
// common lines among absent ones. count is a scratch buffer.
func (s *file) candidates(other *file, count []int, head, tail int) *candidateLines {
	clear(count)
	for _, id := range other.ids {
		count[id]++
	}
	limit := min(roughRoot(len(s.ids)), commonMax)
	r := make([]rarity, len(s.ids)-tail)
	for i := head; i < len(r); i++ {
		switch n := count[s.ids[i]]; {
		case n >= limit:
			r[i] = common
		case n > 0:
			r[i] = rare
		}
	}
	out := &candidateLines{file: s}
	for i := head; i < len(r); i++ {
		if r[i] == rare || r[i] == common && !surrounded(r, i, head) {
			out.ids, out.at = append(out.ids, s.ids[i]), append(out.at, i)
		} else {
			s.changed[i] = true
		}
	}
	return out
}

// roughRoot returns a power of two near the square root of n. It bounds the cost of comparing texts by lines,
// by the same number as in git.
func roughRoot(n int) int {
	r := 1
	for ; n > 0; n >>= 2 {
		r <<= 1
	}
	return r
}

// surrounded reports whether the line with index at, which is common in the other text, stands among lines that the
// other text lacks, so that the search for an edit script leaves it out. r has the rarity of each line; lines before
// head do not count. There must be absent lines on both sides of it, no rare line between, and fewer than one common
// line to three absent ones. The line itself counts twice.
func surrounded(r []rarity, at, head int) bool {
	const window = 100
	look := func(step, end int) (absents, commons int) {
		for i := at + step; i != end+step && r[i] != rare; i += step {
			if r[i] == absent {
				absents++
			} else {
				commons++
			}
		}
		return absents, commons
	}
	before, c1 := look(-1, max(head, at-window))
	if before == 0 {
		return false
	}
	after, c2 := look(+1, min(len(r)-1, at+window))
	return after > 0 && 3*(c1+c2+2) < before+after
}

// A lineSearch searches for the shortest edit script, the fewest deleted and added lines that turn the text x
// into the text y (Myers' algorithm).
type lineSearch struct {
	x, y *candidateLines
	// forward and backward hold the furthest index in x on each diagonal, where a
	// diagonal is an index in x minus one in y. Slice indexes are offset by zero.
	forward, backward []int
	zero              int
}

// farMax is the number of steps from each end of the two texts after which git accepts an edit script that
// may not be the shortest. Then a diff library compares the rest of the texts.
const farMax = 256

// search finds the shortest edit script between the lines x[a:b] of the old and y[c:d] of the new text, and
// marks the lines that it deletes or adds as changed.
func (w *lineSearch) search(a, b, c, d int) {
	for a < b && c < d && w.x.ids[a] == w.y.ids[c] {
		a, c = a+1, c+1
	}
	for a < b && c < d && w.x.ids[b-1] == w.y.ids[d-1] {
		b, d = b-1, d-1
	}
	if a == b || c == d {
		w.x.markChanged(a, b)
		w.y.markChanged(c, d)
		return
	}
	i, j, ok := w.midpoint(a, b, c, d)
	if !ok {
		w.fallback(a, b, c, d)
		return
	}
	w.search(a, i, c, j)
	w.search(i, b, j, d)
}

// fallback marks the lines as changed in which x[a:b] and y[c:d] differ according to a diff library. It is
// used where the search takes too long.
func (w *lineSearch) fallback(a, b, c, d int) {
	for _, h := range zdiff.Hunks(w.x.ids[a:b], w.y.ids[c:d], zdiff.Context(0)) {
		w.x.markChanged(a+h.PosX, a+h.EndX)
		w.y.markChanged(c+h.PosY, c+h.EndY)
	}
}

// midpoint finds a point of the shortest edit script between x[a:b] and y[c:d]: there the searches from both
// ends meet. ok is false if they do not within farMax steps. Among equally good points it takes the one that
// git takes.
func (w *lineSearch) midpoint(a, b, c, d int) (i, j int, ok bool) {
	w.allocate(len(w.x.ids) + len(w.y.ids))
	lowest, highest := a-d, b-c
	start, end := a-c, b-d
	odd := (start-end)&1 != 0
	f, g, z := w.forward, w.backward, w.zero
	f[z+start], g[z+end] = a, b
	fmin, fmax, gmin, gmax := start, start, end, end
	for range farMax {
		fmin, fmax = widen(f, z, fmin, fmax, lowest, highest, -1)
		for k := fmax; k >= fmin; k -= 2 {
			i := f[z+k+1]
			if f[z+k-1] >= i {
				i = f[z+k-1] + 1
			}
			for i < b && i-k < d && w.x.ids[i] == w.y.ids[i-k] {
				i++
			}
			f[z+k] = i
			if odd && gmin <= k && k <= gmax && g[z+k] <= i {
				return i, i - k, true
			}
		}
		gmin, gmax = widen(g, z, gmin, gmax, lowest, highest, math.MaxInt)
		for k := gmax; k >= gmin; k -= 2 {
			i := g[z+k+1] - 1
			if g[z+k-1] <= i {
				i = g[z+k-1]
			}
			for i > a && i-k > c && w.x.ids[i-1] == w.y.ids[i-1-k] {
				i--
			}
			g[z+k] = i
			if !odd && fmin <= k && k <= fmax && i <= f[z+k] {
				return i, i - k, true
			}
		}
	}
	return 0, 0, false
}

// widen extends the range lo to hi of the diagonals of a search by one at each end, or shortens it at the borders
// lowest and highest. v has the furthest index on each diagonal, that of diagonal 0 at index zero. The value nothing
// in v marks a diagonal that the search has not reached.
func widen(v []int, zero, lo, hi, lowest, highest, nothing int) (int, int) {
	if lo > lowest {
		lo--
		v[zero+lo-1] = nothing
	} else {
		lo++
	}
	if hi < highest {
		hi++
		v[zero+hi+1] = nothing
	} else {
		hi--
	}
	return lo, hi
}

// allocate allocates the vectors forward and backward of the search for the shortest edit script, for n lines
// in both texts, on first use.
func (w *lineSearch) allocate(n int) {
	if w.forward == nil {
		w.zero = len(w.y.ids) + 2
		w.forward, w.backward = make([]int, n+5), make([]int, n+5)
	}
}
