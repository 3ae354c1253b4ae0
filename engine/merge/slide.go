package merge

// A group of changed lines can often be moved: when the line before it equals
// its last one, it may begin and end one earlier. The way leaves it anywhere.

// A stretch is a run of changed lines, [start, end), empty between two lines that
// have partners.
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

// next goes to the stretch after the next line with a partner.
func (g *stretch) next() bool {
	if g.end == len(g.changed) {
		return false
	}
	g.start, g.end = g.end+1, g.end+1
	g.grow()
	return true
}

// previous goes to the stretch before the last line with a partner.
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

// up moves the stretch one line up, and joins one that it meets.
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

// down moves it one line down, and joins one that it meets.
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

// slide moves each stretch of s as far down as it goes, or to the last place where
// a stretch of other stands beside it. Groups of both sides are walked together:
// there are as many lines with a partner before one as before the other.
func slide(s, other *file) {
	g, o := s.firstStretch(), other.firstStretch()
	for more := true; more; more = g.next() && o.next() {
		if g.empty() {
			continue
		}
		highest, beside := settle(&g, &o)
		if g.end == highest || !beside {
			continue
		}
		for o.empty() && g.up() && o.previous() {
		}
	}
}

// settle moves a stretch up and then down as far as it goes, again where it
// has joined others meanwhile. highest is where it ended when it was up; beside
// tells whether it was anywhere beside a stretch of the other side.
func settle(g, o *stretch) (highest int, beside bool) {
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
