package report

import (
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
)

// Fold returns rows of a table of changes with fewer lines, at most that many where that is possible. Paths
// in one directory then share a row: first those in directories that were added or deleted as a whole, then
// those of the deepest directories. Rows that are few enough stay.
func Fold(rows []Row, most int) []Row {
	if len(rows) <= most {
		return rows
	}
	rows = foldWhole(rows)
	deepest := 0
	for _, r := range rows {
		deepest = max(deepest, strings.Count(r.Path, "/"))
	}
	for depth := deepest; depth > 0 && len(rows) > most; depth-- {
		rows = foldAt(rows, depth)
	}
	return rows
}

// FoldBelow returns rows of a table of changes in which all paths below one directory of this depth share a
// row.
func FoldBelow(rows []Row, depth int) []Row { return foldAt(rows, depth) }

// foldWhole joins the rows, in a table of changes, of paths in an added or deleted directory with the row of
// that directory.
func foldWhole(all []Row) []Row {
	var rows []Row
	for _, r := range all {
		last := len(rows) - 1
		if last >= 0 && r.From == "" && rows[last].whole && strings.HasPrefix(r.Path, rows[last].Path) {
			rows[last].add(r)
			continue
		}
		r.whole = r.Kind == diff.Added && r.New.Mode.IsDir() || r.Kind == diff.Deleted && r.Old.Mode.IsDir()
		if r.whole {
			r.Path += "/"
		}
		rows = append(rows, r)
	}
	for i := range rows {
		if rows[i].whole && rows[i].paths == 0 { // nothing in it
			rows[i].Path = strings.TrimSuffix(rows[i].Path, "/")
		}
	}
	return rows
}

// foldAt joins rows of a table of changes that follow one another and whose paths share a directory of this
// depth.
func foldAt(all []Row, depth int) []Row {
	var rows []Row
	for i := 0; i < len(all); {
		dir, n := prefix(all[i].Path, depth), 1
		for dir != "" && i+n < len(all) && prefix(all[i+n].Path, depth) == dir {
			n++
		}
		if n == 1 {
			rows = append(rows, all[i])
		} else {
			group := Row{Change: diff.Change{Path: dir, Kind: all[i].Kind}, From: all[i].From, paths: -1}
			for _, r := range all[i : i+n] {
				group.add(r)
			}
			rows = append(rows, group)
		}
		i += n
	}
	return rows
}

// prefix returns the directory of this depth that path, of a row in a table of changes, lies in, with a slash
// at its end, or "" if path is not so deep.
func prefix(path string, depth int) string {
	end := 0
	for range depth {
		i := strings.IndexByte(path[end:], '/')
		if i < 0 {
			return ""
		}
		end += i + 1
	}
	if end == 1 || end == len(path) && depth == 0 {
		return ""
	}
	return path[:end]
}

// add joins another row of a table of changes with this one: it adds that row's paths and bytes to the
// counts.
func (r *Row) add(other Row) {
	r.paths += other.paths + 1
	r.grew += other.grew
	if other.Kind != r.Kind || (other.From == "") != (r.From == "") {
		r.Kind, r.From = diff.Modified, ""
	}
	r.what = fmt.Sprintf("%d paths", r.paths+1)
}
