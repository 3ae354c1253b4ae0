package merge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// The conflict markers in a text, those of git: seven characters at the start of a line, then a blank and a
// name; the third has no name.
const (
	markerMine = "<<<<<<<"
	markerBase = "|||||||"
	markerReal = "======="
	markerEnd  = ">>>>>>>"
)

// baseName is the name that conflict markers in a merged text give the lines of the base.
const baseName = "base"

// writeMarkers writes all three versions of a region in conflict to out, between conflict markers with the
// names. It adds a line feed to a last line that lacks one.
func (t *triple) writeMarkers(out *bytes.Buffer, r region, names Names) {
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
	part(markerMine, names.Mine, r.mine.of(t.mine))
	part(markerBase, names.Base, r.base.of(t.base))
	part(markerReal, "", r.real.of(t.real))
	part(markerEnd, names.Real, nil)
}

// crlf reports whether the conflict markers of a region must end in CR LF. That is so if the base's first
// line ends in CR LF and, in the sandbox's and the real text, the line before the region or else the first
// one does, too.
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

// endsCRLF reports whether line i of a text, lines, ends in CR LF. If line i has no line feed, the line before it
// counts; known is false if no line has one.
func endsCRLF(lines []string, i int) (crlf, known bool) {
	for ; i >= 0 && i < len(lines); i-- {
		if strings.HasSuffix(lines[i], "\n") {
			return strings.HasSuffix(lines[i], "\r\n"), true
		}
	}
	return false, false
}

// HasMarkers reports whether a text still contains a conflict with the markers of a merge: all four, in order, each
// on its own line. mineName and realName are the names of the sides in the markers.
func HasMarkers(text []byte, mineName, realName string) bool {
	want := []string{labelled(markerMine, mineName), labelled(markerBase, baseName), markerReal, labelled(markerEnd, realName)}
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

// WriteMarkers writes to w the merged text of a conflict that is Marked, with both versions of each
// conflicting region between conflict markers. Without a base it marks every difference of the two sides.
// Memory: three texts of TextMax. Errors: ErrNotSupported for a conflict that is not Marked; ErrBusy for a
// file that changed since the merge; *errs.Error for one that cannot be read; those of w.
func WriteMarkers(ctx context.Context, in Input, c Conflict, w io.Writer) error {
	if !c.Marked {
		return &errs.Error{Op: op, Path: c.Path, Kind: errs.ErrNotSupported, Err: errors.New("the conflict has no text lines to mark")}
	}
	m := merger{ctx: ctx, in: in}
	t := entry{on: c.states()}
	if c.Kind != Content {
		t.on[base].node = nil
	}
	texts, ok, err := m.texts(&t)
	if err != nil {
		return err
	}
	if !ok {
		return changedMeanwhile(c.Path)
	}
	three := newTriple(texts[base], texts[mine], texts[real])
	all := three.merge()
	if c.Kind != Content {
		all = three.differences()
	}
	_, err = w.Write(three.write(all, Names{in.MineName, baseName, in.RealName}))
	return err
}

// differences returns every region in which the sandbox's and the real text differ, for a conflict without a
// base.
func (t *triple) differences() (all regions) {
	for _, s := range compare(t.mineIDs, t.realIDs, t.kinds) {
		all = append(all, region{mine: run{s.a, s.b}, real: run{s.c, s.d}})
	}
	return all
}
