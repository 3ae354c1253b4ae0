// Command testreport reads the events of go test -json from its standard input and prints the
// output that go test would print. Then it prints the costs of the run: the ten slowest
// packages, the ten slowest cases, and the number of tests that do more in make test-long.
//
//	go test -json ./... | testreport [-v] [-later FILE]
//
// It exits with status 1 if a package failed, or if the events name no package.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	verbose := flag.Bool("v", false, "print the output of tests that passed, too")
	later := flag.String("later", "", "write the tests that make test-long plays more of to this `file`")
	flag.Parse()
	r := newReport(os.Stdout, *verbose)
	err := r.read(os.Stdin)
	if err == nil {
		err = r.end(*later)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// An event is a line of the output of go test -json, for example that a test began, printed or failed; see go
// doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// A cost is how long a package or a test took, for the list of the slowest at the end of a test run's report.
type cost struct {
	name    string
	elapsed time.Duration
}

// A report collects the events of a go test run. It prints results of packages at once, and the output of a
// test only if the test has failed. At the end it prints the slowest.
type report struct {
	out     io.Writer
	verbose bool
	began   time.Time
	// output holds the lines of each test that has not ended, or has failed.
	output map[string][]string
	// order lists the tests of a package in the order in which they began.
	order map[string][]string
	// children is the total time of a test's subtests, which is a part of the test's own time.
	children        map[string]time.Duration
	packages, cases []cost
	passed, skipped int
	failed          []string
	// later holds the tests that do more in make test-long, as "package test".
	later map[string]bool
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{
		out: out, verbose: verbose, began: time.Now(), later: map[string]bool{},
		output: map[string][]string{}, order: map[string][]string{}, children: map[string]time.Duration{},
	}
}

// read handles each event of a go test run, a line of in. It prints a line that is no event unchanged,
// because go vet and the linter write such lines.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "" && err == io.EOF:
			return nil
		case line == "" && err != nil:
			return err
		case json.Unmarshal([]byte(line), &e) == nil && e.Action != "":
			r.handle(e)
		default:
			fmt.Fprintln(r.out, strings.TrimSuffix(line, "\n"))
		}
	}
}

func (r *report) handle(e event) {
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output" && e.Test == "":
		r.line(e)
	case e.Action == "run":
		r.order[e.Package] = append(r.order[e.Package], key)
	case e.Action == "output":
		r.testLine(key, e)
	case e.Test != "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		r.ended(key, e)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		r.packageEnded(e)
	}
}

// line prints an output line of a package, unless go test would omit it. Before the line of a failed package
// it prints the output of the failed tests.
func (r *report) line(e event) {
	if e.Output == "PASS\n" || strings.HasPrefix(e.Output, "coverage: ") && !r.verbose {
		return
	}
	if strings.HasPrefix(e.Output, "FAIL") {
		r.show(e.Package)
	}
	fmt.Fprint(r.out, e.Output)
}

func (r *report) testLine(key string, e event) {
	if strings.Contains(e.Output, laterNote) {
		name, _, _ := strings.Cut(e.Test, "/")
		r.later[e.Package+" "+name] = true
	}
	trimmed := strings.TrimSpace(e.Output)
	for _, frame := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(trimmed, frame) && !r.verbose {
			return
		}
	}
	if r.verbose {
		fmt.Fprint(r.out, e.Output)
		return
	}
	r.output[key] = append(r.output[key], e.Output)
}

// laterNote begins the output line of a test that does more in make test-long. It is a copy of
// treetest.LaterNote, because that package is for Linux only.
const laterNote = "make test-long plays more of "

func (r *report) ended(key string, e event) {
	elapsed := time.Duration(e.Elapsed * float64(time.Second))
	if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
		r.children[e.Package+" "+e.Test[:i]] += elapsed
	}
	own := elapsed - r.children[key] // negative where subtests ran beside each other
	r.cases = append(r.cases, cost{short(e.Package) + " " + e.Test, max(own, 0)})
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	}
	if e.Action != "fail" {
		delete(r.output, key)
	}
}

// show prints the stored output of the tests of pkg that failed or never ended, a test before its subtests.
func (r *report) show(pkg string) {
	for _, key := range r.order[pkg] {
		for _, line := range r.output[key] {
			fmt.Fprint(r.out, line)
		}
		delete(r.output, key)
	}
}

func (r *report) packageEnded(e event) {
	if e.Action == "fail" {
		r.show(e.Package)
		r.failed = append(r.failed, e.Package)
	}
	r.packages = append(r.packages, cost{short(e.Package), time.Duration(e.Elapsed * float64(time.Second))})
	delete(r.order, e.Package)
}

// short returns a package's import path without the path of this module, for the report.
func short(pkg string) string { return strings.TrimPrefix(pkg, "github.com/snapfs/snapfs/") }

// end prints the costs of the test run, such as the slowest tests. It writes the names of the tests that do
// more in make test-long to the file later.
func (r *report) end(later string) error {
	if len(r.packages) == 0 {
		return fmt.Errorf("no package was tested")
	}
	r.slowest("packages", r.packages)
	r.slowest("cases", r.cases)
	fmt.Fprintf(r.out, "%d packages in %v: %d tests and subtests passed, %d were skipped, and %d have more to do in make test-long\n",
		len(r.packages), time.Since(r.began).Round(time.Second), r.passed, r.skipped, len(r.later))
	if later != "" {
		var text strings.Builder
		for _, line := range sorted(r.later) {
			text.WriteString(line + "\n")
		}
		if err := os.WriteFile(later, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	if len(r.failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(r.failed, " "))
	}
	return nil
}

func sorted(set map[string]bool) (list []string) {
	for name := range set {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// slowest prints the ten longest times of all, those of packages or of tests, under a heading that calls them
// what. It sorts all in place.
func (r *report) slowest(what string, all []cost) {
	slices.SortStableFunc(all, func(a, b cost) int { return int(b.elapsed - a.elapsed) })
	fmt.Fprintf(r.out, "the slowest %s:\n", what)
	for _, c := range all[:min(len(all), 10)] {
		fmt.Fprintf(r.out, "%8.1fs  %s\n", c.elapsed.Seconds(), c.name)
	}
}
