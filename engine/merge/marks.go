package merge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// The marks of a conflict, each seven characters at the start of a line, followed
// by a blank and a name; the third has none.
const (
	markMine = "<<<<<<<"
	markBase = "|||||||"
	markReal = "======="
	markEnd  = ">>>>>>>"
)

// baseName names what both sides started from.
const baseName = "base"

// mark writes all versions of a region between marks. A last line that no line
// feed ends gets one.
func (t *triple) mark(out *bytes.Buffer, r region, names Names) {
	end := "\n"
	if t.crlf(r) {
		end = "\r\n"
	}
	part := func(mark, name string, lines []string) {
		out.WriteString(mark)
		if name != "" {
			out.WriteString(" " + name)
		}
		out.WriteString(end)
		writeLines(out, lines)
		if len(lines) > 0 && !strings.HasSuffix(lines[len(lines)-1], "\n") {
			out.WriteString(end)
		}
	}
	part(markMine, names.Mine, r.mine.of(t.mine))
	part(markBase, names.Base, r.base.of(t.base))
	part(markReal, "", r.real.of(t.real))
	part(markEnd, names.Real, nil)
}

// crlf reports whether marks end in CR LF: the base's first line does, and so does
// the line before the place, or the first, on both sides, as far as they have any.
func (t *triple) crlf(r region) bool {
	for _, at := range []struct {
		lines []string
		i     int
	}{{t.mine, r.mine.start - 1}, {t.real, r.real.start - 1}} {
		if crlf, known := endsCRLF(at.lines, max(at.i, 0)); known && !crlf {
			return false
		}
	}
	crlf, _ := endsCRLF(t.base, 0)
	return crlf
}

// endsCRLF tells how line i ends, or where nothing ends it, the one before it.
func endsCRLF(lines []string, i int) (crlf, known bool) {
	for ; i >= 0 && i < len(lines); i-- {
		if strings.HasSuffix(lines[i], "\n") {
			return strings.HasSuffix(lines[i], "\r\n"), true
		}
	}
	return false, false
}

// HasMarks reports whether a text still holds the marks of a conflict, with these
// names of the sides: all four, in their order, each on a line of its own.
func HasMarks(text []byte, mineName, realName string) bool {
	want := []string{labelled(markMine, mineName), labelled(markBase, baseName), markReal, labelled(markEnd, realName)}
	next := 0
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		switch string(bytes.TrimSuffix(line, []byte{'\r'})) {
		case want[next]:
			if next++; next == len(want) {
				return true
			}
		case want[0]:
			next = 1
		}
	}
	return false
}

func labelled(mark, name string) string { return strings.TrimSuffix(mark+" "+name, " ") }

// Marks writes the text of a conflict that is Marked, with what the sides do not
// agree on between marks, to w. Where there is no base, or it is not known, all in
// which the sides differ is marked. Memory: three texts of TextMax. Errors:
// ErrNotSupported where the conflict is not Marked; ErrBusy where a file has
// changed since the merge; *snapshot.Error of one that cannot be read; those of w.
func Marks(ctx context.Context, in Input, c Conflict, w io.Writer) error {
	if !c.Marked {
		return &snapshot.Error{Op: doing, Path: c.Path, Kind: snapshot.ErrNotSupported, Err: errors.New("it has no lines that could be marked")}
	}
	m := merger{ctx: ctx, in: in}
	t := thing{on: c.states()}
	if c.Kind != Content {
		t.on[base].node = nil
	}
	texts, ok, err := m.texts(&t)
	if err != nil {
		return err
	}
	if !ok {
		return unsteady(c.Path)
	}
	three := newTriple(texts[base], texts[mine], texts[real])
	all := three.merge()
	if c.Kind != Content {
		all = three.apart()
	}
	_, err = w.Write(three.write(all, Names{in.MineName, baseName, in.RealName}))
	return err
}

// apart are all places in which two texts without a base differ.
func (t *triple) apart() (all regions) {
	for _, s := range compare(t.mineIDs, t.realIDs, t.kinds) {
		all = append(all, region{mine: run{s.a, s.b}, real: run{s.c, s.d}})
	}
	return all
}
