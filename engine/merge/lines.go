package merge

import (
	"math"
	"strings"

	zdiff "znkr.io/diff"
)

// Lines are compared as git compares them, so that a merge says what git would
// have said. Where a line could be paired with one of several, every program for
// this takes another; which it is decides whether two edits touch. So the
// choices here are git's, as its xdiff/xdiffi.c and xdiff/xprepare.c (version
// 2.39) make them: which lines are left out of the search beforehand, which of two
// equally long ways is taken (E. Myers, "An O(ND) difference algorithm", 1986),
// and to where a group of lines slides afterwards.
//
// Git gives up on the shortest way where it gets long; there the search is left
// to znkr.io/diff, which may take another way than git does.

// A span is a run of lines that differs: old[a:b] became new[c:d].
type span struct{ a, b, c, d int }

// A numbering gives equal lines equal numbers.
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

// splitLines cuts behind each line feed. The last line may lack it.
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

// A file is one of two files being compared.
type file struct {
	ids     []int
	changed []bool // has no partner on the other side
}

// compare gives the spans in which two files differ whose lines have numbers below
// kinds, in order. No two touch.
func compare(old, new []int, kinds int) []span {
	a := &file{old, make([]bool, len(old))}
	b := &file{new, make([]bool, len(new))}
	seek(a, b, kinds)
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

// seek marks what has no partner.
func seek(a, b *file, kinds int) {
	head, tail := 0, 0
	for head < len(a.ids) && head < len(b.ids) && a.ids[head] == b.ids[head] {
		head++
	}
	for shorter := min(len(a.ids), len(b.ids)); tail < shorter-head && a.ids[len(a.ids)-1-tail] == b.ids[len(b.ids)-1-tail]; {
		tail++
	}
	counts := make([]int, kinds)
	w := &way{x: a.worth(b, counts, head, tail), y: b.worth(a, counts, head, tail)}
	w.search(0, len(w.x.ids), 0, len(w.y.ids))
}

// A sieved side holds those lines of it that take part in the search.
type sieved struct {
	*file
	ids []int
	at  []int // where each is in the side
}

func (s *sieved) mark(from, to int) {
	for _, i := range s.at[from:to] {
		s.changed[i] = true
	}
}

// How often a line must be on the other side to count as common.
const commonMax = 1024

// rarity is how much a line of one side tells.
type rarity uint8

const (
	absent rarity = iota // is not on the other side: needs no search
	rare
	common // is there so often that it tells nothing
)

// worth takes the lines between a common head and tail that are worth a search,
// and marks the others: those that the other side lacks, and common ones in
// the midst of such. count is room to count in.
func (s *file) worth(other *file, count []int, head, tail int) *sieved {
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
	out := &sieved{file: s}
	for i := head; i < len(r); i++ {
		if r[i] == rare || r[i] == common && !drowned(r, i, head) {
			out.ids, out.at = append(out.ids, s.ids[i]), append(out.at, i)
		} else {
			s.changed[i] = true
		}
	}
	return out
}

// roughRoot is a power of two near the square root.
func roughRoot(n int) int {
	r := 1
	for ; n > 0; n >>= 2 {
		r <<= 1
	}
	return r
}

// drowned reports whether a common line stands among absent ones, on both
// sides, with no rare line between and at most one other common line to three of
// them, itself counted twice.
func drowned(r []rarity, at, head int) bool {
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

// A way is the search for the shortest way from x to y.
type way struct {
	x, y *sieved
	// forward and backward hold the furthest point in x on each diagonal, which
	// is a place in x less one in y. They are shifted by zero.
	forward, backward []int
	zero              int
}

// farMax is the number of steps, from each end, after which git takes a way that
// may not be the shortest.
const farMax = 256

// search marks what differs between x[a:b] and y[c:d].
func (w *way) search(a, b, c, d int) {
	for a < b && c < d && w.x.ids[a] == w.y.ids[c] {
		a, c = a+1, c+1
	}
	for a < b && c < d && w.x.ids[b-1] == w.y.ids[d-1] {
		b, d = b-1, d-1
	}
	if a == b || c == d {
		w.x.mark(a, b)
		w.y.mark(c, d)
		return
	}
	i, j, ok := w.middle(a, b, c, d)
	if !ok {
		w.library(a, b, c, d)
		return
	}
	w.search(a, i, c, j)
	w.search(i, b, j, d)
}

// library marks by the library's answer.
func (w *way) library(a, b, c, d int) {
	for _, h := range zdiff.Hunks(w.x.ids[a:b], w.y.ids[c:d], zdiff.Context(0)) {
		w.x.mark(a+h.PosX, a+h.EndX)
		w.y.mark(c+h.PosY, c+h.EndY)
	}
}

// middle finds where the ways from both ends of a box meet; false after farMax
// steps. Of two ways that lead equally far the one is taken that git takes.
func (w *way) middle(a, b, c, d int) (i, j int, ok bool) {
	w.room(len(w.x.ids) + len(w.y.ids))
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

// widen adds a diagonal at each end of lo to hi, within the box, or takes one off
// where the box ends. Beyond the ends nothing was reached.
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

// room makes the vectors, once.
func (w *way) room(n int) {
	if w.forward == nil {
		w.zero = len(w.y.ids) + 2
		w.forward, w.backward = make([]int, n+5), make([]int, n+5)
	}
}
