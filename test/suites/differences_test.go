package suites

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A status is how one test of a suite ended.
type status string

const (
	passed  status = "passed"
	failed  status = "failed"
	skipped status = "skipped"
	// absent is the status of a test that ended elsewhere, but did not begin here.
	absent status = "absent"
)

// results are the tests of one unit of a suite, by name, and how each ended.
type results map[string]status

func (r results) of(test string) status {
	if s, ok := r[test]; ok {
		return s
	}
	return absent
}

// A difference is a line of testdata/differences.txt: tests that end differently in a sandbox.
type difference struct {
	// place and unit are patterns of path.Match, such as "root/*" and "go/os".
	place, unit string
	test        *regexp.Regexp
	// from and to are how the test ends on the bare disk and in the sandbox. Both are empty if that varies.
	from, to status
	text     string
}

// parseDifferences reads a list of differences. A line that begins with "= " is the reason for the lines after it,
// which have four columns: the place, the statuses as "passed>skipped" or the word "varies", the unit, and the
// name of the test, in which each * stands for any text.
func parseDifferences(text string) ([]difference, error) {
	var list []difference
	statuses := []status{passed, failed, skipped, absent}
	reason := ""
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if why, ok := strings.CutPrefix(line, "= "); ok {
			reason = why
			continue
		}
		columns := strings.Fields(line)
		if len(columns) < 4 || reason == "" {
			return nil, fmt.Errorf("line %d: not a place, statuses, a unit and a test, after a line with a reason: %q", number+1, line)
		}
		d := difference{place: columns[0], unit: columns[2], text: line}
		if columns[1] != "varies" {
			from, to, _ := strings.Cut(columns[1], ">")
			d.from, d.to = status(from), status(to)
			if !slices.Contains(statuses, d.from) || !slices.Contains(statuses, d.to) || d.from == d.to {
				return nil, fmt.Errorf("line %d: no two statuses: %q", number+1, columns[1])
			}
		}
		for _, pattern := range []string{d.place, d.unit} {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, fmt.Errorf("line %d: %q: %w", number+1, pattern, err)
			}
		}
		pattern := regexp.QuoteMeta(strings.Join(columns[3:], " "))
		d.test = regexp.MustCompile("^" + strings.ReplaceAll(pattern, `\*`, ".*") + "$")
		list = append(list, d)
	}
	return list, nil
}

// about reports whether the line is about this unit in this place.
func (d difference) about(place, unit string) bool {
	here, _ := path.Match(d.place, place)
	it, _ := path.Match(d.unit, unit)
	return here && it
}

// wrong compares the results of a unit on the bare disk and in the sandbox of a place. It returns the differences
// that are not listed, and the lines that list what is no difference, sorted.
func wrong(list []difference, place, unit string, bare, inside results) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(d difference) bool { return !d.about(place, unit) })
	met := make([]bool, len(list))
	tests := maps.Clone(bare)
	maps.Copy(tests, inside)
	var lines []string
	for test := range tests {
		from, to := bare.of(test), inside.of(test)
		if from == to || ofParent(bare, inside, test) {
			continue
		}
		known := false
		for i, d := range list {
			if d.test.MatchString(test) && (d.from == "" || d.from == from && d.to == to) {
				met[i], known = true, true
			}
		}
		if !known {
			lines = append(lines, fmt.Sprintf("%s %s>%s %s %s", place, from, to, unit, test))
		}
	}
	for i, d := range list {
		if !met[i] && d.from != "" {
			lines = append(lines, fmt.Sprintf("%s: listed, and no difference: %s", place, d.text))
		}
	}
	slices.Sort(lines)
	return lines
}

// ofParent reports whether a subtest is missing on one side because its parent test ended differently there.
// The parent then stands for it.
func ofParent(bare, inside results, test string) bool {
	if bare.of(test) != absent && inside.of(test) != absent {
		return false
	}
	for i, c := range test {
		if parent := test[:i]; c == '/' && bare.of(parent) != inside.of(parent) {
			return true
		}
	}
	return false
}

func readDifferences(t *testing.T) []difference {
	t.Helper()
	text, err := os.ReadFile("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err := parseDifferences(string(text))
	if err != nil {
		t.Fatalf("testdata/differences.txt: %v", err)
	}
	return list
}

func TestEachListedDifferenceHasAReason(t *testing.T) {
	if len(readDifferences(t)) == 0 {
		t.Error("testdata/differences.txt lists nothing")
	}
	for _, bad := range []string{
		"root/* passed>failed go/os TestX",
		"= why\nroot/* passed>broken go/os TestX",
		"= why\nroot/* passed>passed go/os TestX",
		"= why\nroot/[ passed>failed go/os TestX",
		"= why\nroot/* passed>failed go/os",
	} {
		if _, err := parseDifferences(bad); err == nil {
			t.Errorf("read without an error: %q", bad)
		}
	}
}

func TestDifferencesAreListedBothWays(t *testing.T) {
	list, err := parseDifferences(`
# a comment
= device nodes are refused
root/* passed>failed pjdfstest *::block
= depends on the load
*/* varies go/os TestSlow
= only there
root/btrfs passed>skipped go/os TestX`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		place, unit  string
		bare, inside results
		want         []string
	}{
		{"root/overlay", "pjdfstest", results{"a::block": passed, "b": failed}, results{"a::block": failed, "b": failed}, nil},
		{"root/overlay", "pjdfstest", results{"a::block": passed}, results{"a::block": passed}, []string{"root/overlay: listed, and no difference: root/* passed>failed pjdfstest *::block"}},
		{"root/overlay", "pjdfstest", results{"a::block": passed, "b": passed}, results{"a::block": failed}, []string{"root/overlay passed>absent pjdfstest b"}},
		{"user/overlay", "go/os", results{"TestSlow": passed}, results{"TestSlow": failed}, nil},
		{"user/overlay", "go/os", results{"TestSlow": passed}, results{"TestSlow": passed}, nil},
		{"user/overlay", "go/os", results{"TestX": passed}, results{"TestX": skipped}, []string{"user/overlay passed>skipped go/os TestX"}},
		{"root/btrfs", "go/os", results{"TestX": passed, "TestX/sub": passed}, results{"TestX": skipped}, nil},
		{"root/btrfs", "go/os", results{"TestX": passed}, results{"TestX": failed}, []string{"root/btrfs passed>failed go/os TestX", "root/btrfs: listed, and no difference: root/btrfs passed>skipped go/os TestX"}},
	} {
		if got := wrong(list, c.place, c.unit, c.bare, c.inside); !slices.Equal(got, c.want) {
			t.Errorf("%s %s %v %v:\ngot  %q\nwant %q", c.place, c.unit, c.bare, c.inside, got, c.want)
		}
	}
}
