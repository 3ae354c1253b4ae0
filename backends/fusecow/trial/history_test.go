//go:build linux

package trial_test

import (
	"errors"
	"fmt"
	"strings"
)

// An event is an operation on the bytes [from, to) of a file, or on all files if file is 0.
type event struct {
	n, file, from, to int
	what              string
}

const remembered = 5000

// A history has the last operations.
type history struct {
	ring [remembered]event
	n    int
}

// note records an operation.
func (m *model) note(file, from, to int, what string, args ...any) {
	if len(args) > 0 {
		what = fmt.Sprintf(what, args...)
	}
	m.history.ring[m.history.n%remembered] = event{m.done, file, from, to, what}
	m.history.n++
}

// tell prints the last operations that touched the byte or the file of a difference, or everything.
func (m *model) printHistory(err error) string {
	var d *difference
	if !errors.As(err, &d) {
		d = &difference{}
	}
	var lines []string
	const most = 40
	for i := m.history.n - 1; i >= max(0, m.history.n-remembered) && len(lines) < most; i-- {
		e := m.history.ring[i%remembered]
		if e.file == 0 || d.file == nil || e.file == d.file.number && (d.at < 0 || e.from <= d.at && d.at < e.to) {
			lines = append(lines, fmt.Sprintf("%8d  file %-4d %8d..%-8d %s", e.n, e.file, e.from, e.to, e.what))
		}
	}
	return fmt.Sprintf("%v\nseed %d, after %d operations; the last that have to do with it, the latest first:\n%s",
		err, m.seed, m.done, strings.Join(lines, "\n"))
}
