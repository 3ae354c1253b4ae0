package main

import (
	"os"
	"strings"
	"testing"
)

// Cost: half a second.
func TestListsAreColouredAndPagedAtATerminalOnly(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "fix").want(0)
	b.snapfs("exec", "fix", "--", "sh", "-c", "rm real; mkdir -p deep/er; touch $(seq -f deep/er/%g 300)").want(0)

	t.Setenv("PAGER", "sed 's/^/paged: /'; exit 1")
	p := sit(t, b, "diff", "fix")
	p.sees("paged: \x1b[32mA\x1b[39m  302 paths")
	p.sees("deep/\r\n")
	p.sees("paged: \x1b[31mD\x1b[39m  file")
	p.sees("paged: … 303 paths, of which some share a line (snapfs diff … | cat)\r\n")
	p.sees("302 added, 1 deleted")
	if st := p.leaves(); st != 0 {
		t.Errorf("status %d", st)
	}
	p = sit(t, b, "ls")
	p.sees("paged: NAME  \x1b[39mSTATE\x1b[39m")
	p.sees("paged: fix   \x1b[")
	p.leaves()

	// A person who leaves early has seen enough.
	t.Setenv("SNAPFS_PAGER", "head -n 1")
	p = sit(t, b, "diff", "--patch", "fix")
	if st := p.leaves(); st != 0 {
		t.Errorf("status %d", st)
	}
	t.Setenv("SNAPFS_PAGER", "no-such-pager")
	p = sit(t, b, "diff", "fix")
	p.sees("no-such-pager")
	if st := p.leaves(); st != 1 {
		t.Errorf("status %d", st)
	}

	out := b.snapfs("diff", "fix").want(0).stdout
	if strings.Contains(out, "\x1b") || strings.Count(out, "\n") != 304 {
		t.Errorf("in a pipe, of %d lines: %q", strings.Count(out, "\n"), out[:100])
	}
}

func TestADumbTerminalGetsPlainText(t *testing.T) {
	outer, inner := terminals(t)
	defer outer.Close()
	defer inner.Close()
	u := newUI(os.Stdin, inner, inner)
	for _, c := range []struct {
		term, colour      string
		capable, coloured bool
	}{{"xterm", "", true, true}, {"xterm", "1", true, false}, {"dumb", "", false, false}, {"", "", false, false}} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.colour) //nolint:misspell // the variable's name
		if u.capable(inner) != c.capable || u.colours(inner) != c.coloured {
			t.Errorf("TERM=%s: capable %v, colours %v", c.term, u.capable(inner), u.colours(inner))
		}
	}
}
