//go:build linux && suites

package suites

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A unit is the smallest part of a suite that runs by itself: a package, a module, a stressor.
type unit struct {
	suite, name string
	// places are the places in which the unit runs; nil means all.
	places []string
	// heavy units take so long that only a run of all jobs has them.
	heavy bool
	// lay puts the files that the unit needs in an empty directory.
	lay func(dir string) error
	// script runs the unit in that directory, with its temporary files in the directory tmp there.
	script string
	// parse reads the results from what the script printed.
	parse func(output string) (results, error)
}

// allUnits returns the units of all suites. Without SNAPFS_PJDFSTEST, the path of pjdfstest, that suite is left out.
func allUnits(ctx context.Context) ([]unit, error) {
	list := append(goUnits(), pythonUnits()...)
	if program := os.Getenv("SNAPFS_PJDFSTEST"); program != "" {
		list = append(list, pjdfstest(program))
	}
	stress, err := stressUnits(ctx)
	return append(list, stress...), err
}

// asRoot are the places for what an ordinary user may not do.
var asRoot = []string{"root/overlay", "root/fusecow", "root/fusecow-overlay", "root/btrfs"}

// pjdfstest is the suite of that name, at the path program, without its cases of read-only filesystems: these
// mount the filesystem anew, and `make posix` runs them.
func pjdfstest(program string) unit {
	return unit{
		suite: "pjdfstest", name: "pjdfstest", places: asRoot,
		lay: func(dir string) error { return copyAll(dir, program, "testdata/pjdfstest.toml") },
		script: `
mkdir t
./pjdfstest -c pjdfstest.toml -p "$PWD/t" || true`,
		parse: lines(`(?m)^(\S+) +(ok|FAILED|skipped)$`, map[string]status{"ok": passed, "FAILED": failed, "skipped": skipped}),
	}
}

// packages are the packages of Go's standard library whose tests use files, processes and system calls.
var packages = []string{"os", "path/filepath", "io/fs", "os/exec", "syscall", "internal/poll"}

// goUnits are Go's own tests. They run beside their package's sources, some of which they read, and with no go
// command, so that none of them builds programs.
func goUnits() []unit {
	var list []unit
	for _, pkg := range packages {
		list = append(list, unit{
			suite: "go", name: "go/" + pkg, heavy: pkg == "os",
			lay: func(dir string) error {
				root, err := run.Output(context.Background(), "go", "env", "GOROOT")
				if err != nil {
					return err
				}
				source := filepath.Join(strings.TrimSpace(string(root)), "src", pkg)
				return copyAll(dir, source, testProgram(pkg))
			},
			script: fmt.Sprintf(`
cd %s
../%s -test.v -test.timeout 4m </dev/null || true`, filepath.Base(pkg), filepath.Base(testProgram(pkg))),
			parse: lines(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`, map[string]status{"PASS": passed, "FAIL": failed, "SKIP": skipped}),
		})
	}
	return list
}

// modules are the modules of Python's own tests that use files and processes. test_largefile is not among them: it
// writes files of several gigabytes.
var modules = strings.Fields(`dbm_dumb fcntl file filecmp fileinput fileio genericpath glob gzip mailbox
mmap openpty os pathlib posix posixpath pty shelve shutil stat tarfile tempfile threadedtempfile unicode_file
unicode_file_functions zipfile zipimport`)

// pythonUnits are Python's own tests, as Debian packs them.
func pythonUnits() []unit {
	var list []unit
	for _, module := range modules {
		list = append(list, unit{
			suite: "python", name: "python/" + module, heavy: module == "tarfile",
			lay: func(string) error { return nil },
			script: fmt.Sprintf(`
cd tmp
/usr/bin/python3.11 -m test --junit-xml ../results.xml --tempdir "$PWD" --timeout 240 test_%s </dev/null || true
cat ../results.xml`, module),
			parse: junit,
		})
	}
	return list
}

// leftOut are stressors that do not run, each with why.
var leftOut = map[string]string{
	"softlockup": "it keeps all processors busy at the highest real-time priority, on the bare machine too",
}

// stressUnits are the stressors of two classes, a second each. A stressor verifies what it does where it can.
func stressUnits(ctx context.Context) ([]unit, error) {
	var list []unit
	known := map[string]bool{}
	for _, class := range []string{"filesystem", "scheduler"} {
		out, err := run.Output(ctx, "stress-ng", "--class", class+"?")
		if err != nil {
			return nil, err
		}
		_, names, _ := strings.Cut(string(out), ":")
		for _, name := range strings.Fields(names) {
			if known[name] || leftOut[name] != "" { // some are of both classes
				continue
			}
			known[name] = true
			list = append(list, unit{
				suite: "stress-" + class, name: "stress/" + name, places: append([]string{"user/overlay"}, asRoot...),
				lay: func(string) error { return nil },
				script: fmt.Sprintf(`
cd tmp
status=0
ulimit -S -f 2097152 # KiB: the stressor forkheavy asks for terabytes, and would fill the disk for those beside it
stress-ng --%s 1 --timeout 1 --verify --temp-path . </dev/null || status=$?
echo "stressed: $status"`, name),
				parse: stressed,
			})
		}
		if len(known) < 40 {
			return nil, fmt.Errorf("stress-ng has only the stressors %q", out)
		}
	}
	return list, nil
}

// stressed reads how a stressor ended: by its status, and by its word where it has skipped all of its work.
func stressed(output string) (results, error) {
	m := regexp.MustCompile(`(?m)^stressed: (\d+)$`).FindStringSubmatch(output)
	switch {
	case m == nil:
		return nil, fmt.Errorf("stress-ng did not end")
	case m[1] == "3", m[1] == "4", m[1] == "0" && regexp.MustCompile(`skipping stress|will be skipped|skipped stressor`).MatchString(output):
		return results{"stressor": skipped}, nil
	case m[1] == "0":
		return results{"stressor": passed}, nil
	}
	return results{"stressor": failed}, nil
}

// lines returns a parser of results, each in a line that the pattern matches: one of its two groups is a word of
// words, and the other the name of the test.
func lines(pattern string, words map[string]status) func(string) (results, error) {
	line := regexp.MustCompile(pattern)
	return func(output string) (results, error) {
		r := results{}
		for _, m := range line.FindAllStringSubmatch(output, -1) {
			if s, ok := words[m[1]]; ok {
				r[m[2]] = s
			} else {
				r[m[1]] = words[m[2]]
			}
		}
		if len(r) == 0 {
			return nil, fmt.Errorf("no test has run")
		}
		return r, nil
	}
}

// junit reads results in the format of JUnit, as Python's tests write them.
func junit(output string) (results, error) {
	begin, end := strings.Index(output, "<testsuites"), strings.LastIndex(output, "</testsuites>")
	if begin < 0 || end < begin {
		return nil, fmt.Errorf("no results of Python's tests")
	}
	var list struct {
		Cases []struct {
			Name    string     `xml:"name,attr"`
			Failure []struct{} `xml:"failure"`
			Error   []struct{} `xml:"error"`
			Skipped []struct{} `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal([]byte(output[begin:end+len("</testsuites>")]), &list); err != nil {
		return nil, err
	}
	r := results{}
	for _, c := range list.Cases {
		switch {
		case len(c.Failure)+len(c.Error) > 0:
			r[c.Name] = failed
		case len(c.Skipped) > 0:
			r[c.Name] = skipped
		default:
			r[c.Name] = passed
		}
	}
	if len(r) == 0 {
		return nil, fmt.Errorf("no test has run")
	}
	return r, nil
}

// testProgram is the path at which the tests of a package of Go's are built.
func testProgram(pkg string) string {
	return filepath.Join(treetest.Built(), strings.ReplaceAll(pkg, "/", "_")+".test")
}

// builds builds each package's test program once in a run, when it is needed first.
var builds sync.Map

// built builds the test program of a unit of Go's, if that has not been built.
func built(ctx context.Context, u unit) error {
	pkg, ok := strings.CutPrefix(u.name, "go/")
	if !ok || os.Geteuid() != 0 { // an ordinary user runs what root has built
		return nil
	}
	once, _ := builds.LoadOrStore(pkg, sync.OnceValue(func() error {
		_, err := run.Output(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", testProgram(pkg), pkg)
		return err
	}))
	if build, ok := once.(func() error); ok {
		return build()
	}
	return nil
}

// copyAll copies files and directories into a directory, with what they hold, readable by every user.
func copyAll(dir string, paths ...string) error {
	for _, path := range paths {
		if _, err := run.Output(context.Background(), "cp", "-r", "--no-preserve=ownership", path, dir); err != nil {
			return err
		}
	}
	return nil
}
