package merge

// A group of changed lines can slide: if the line before the group equals its last line,
// the group may start and end one line earlier. The search leaves it at any of these
// positions.

// A stretch is a run of changed lines, [start, end), in one of two texts that a merge compares. It is empty
// between two unchanged lines.
type stretch struct {
	*file
	start, end int
}

func (s *file) firstStretch() stretch {
	g := stretch{file: s}
	g.grow()
	return g
}

func (g *stretch) grow() {
	for g.end < len(g.changed) && g.changed[g.end] {
		g.end++
	}
}

// next moves to the stretch of changed lines after the next unchanged line. It returns false at the end of
// the text.
func (g *stretch) next() bool {
	if g.end == len(g.changed) {
		return false
	}
	g.start, g.end = g.end+1, g.end+1
	g.grow()
	return true
}

// previous moves to the stretch of changed lines before the last unchanged line. It returns false at the
// start of the text.
func (g *stretch) previous() bool {
	if g.start == 0 {
		return false
	}
	g.start, g.end = g.start-1, g.start-1
	for g.start > 0 && g.changed[g.start-1] {
		g.start--
	}
	return true
}

// up slides the stretch, a run of changed lines, one line up, if the text allows that, and joins a stretch
// that it meets. It reports whether it did.
func (g *stretch) up() bool {
	if g.start == 0 || g.ids[g.start-1] != g.ids[g.end-1] {
		return false
	}
	g.start, g.end = g.start-1, g.end-1
	g.changed[g.start], g.changed[g.end] = true, false
	for g.start > 0 && g.changed[g.start-1] {
		g.start--
	}
	return true
}

// down slides the stretch, a run of changed lines, one line down, if the text allows that, and joins a
// stretch that it meets. It reports whether it did.
func (g *stretch) down() bool {
	if g.end == len(g.changed) || g.ids[g.start] != g.ids[g.end] {
		return false
	}
	g.changed[g.start], g.changed[g.end] = false, true
	g.start, g.end = g.start+1, g.end+1
	g.grow()
	return true
}

func (g *stretch) empty() bool { return g.start == g.end }

// slide moves each run of changed lines in the text s down as far as the text allows, or to the last position
// beside a run of changed lines of other, as git does. It walks both texts together: each has equally many
// unchanged lines before the current run.
func slide(s, other *file) {
	g, o := s.firstStretch(), other.firstStretch()
	for more := true; more; more = g.next() && o.next() {
		if g.empty() {
			continue
		}
		highest, beside := slideFully(&g, &o)
		if g.end == highest || !beside {
			continue
		}
		for o.empty() && g.up() && o.previous() {
		}
	}
}

// slideFully slides g, a run of changed lines of one text, up and then down as far as possible, and again if
// it has joined others. highest is its end in the topmost position. beside reports whether it was, in any
// position, beside a run of changed lines of the other text, o.
func slideFully(g, o *stretch) (highest int, beside bool) {
	for {
		size := g.end - g.start
		for g.up() && o.previous() {
		}
		highest = g.end
		beside = !o.empty()
		for g.down() && o.next() {
			beside = beside || !o.empty()
		}
		if size == g.end-g.start {
			return highest, beside
		}
	}
}
