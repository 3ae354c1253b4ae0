package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"github.com/snapfs/snapfs/a"}
{"Action":"run","Package":"github.com/snapfs/snapfs/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/snapfs/snapfs/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"run","Package":"github.com/snapfs/snapfs/a","Test":"TestGood/part"}
{"Action":"output","Package":"github.com/snapfs/snapfs/a","Test":"TestGood/part","Output":"    x_test.go:1: make test-long plays more of TestGood/part\n"}
{"Action":"pass","Package":"github.com/snapfs/snapfs/a","Test":"TestGood/part","Elapsed":2}
{"Action":"pass","Package":"github.com/snapfs/snapfs/a","Test":"TestGood","Elapsed":2.5}
{"Action":"output","Package":"github.com/snapfs/snapfs/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/snapfs/snapfs/a","Output":"ok  \tgithub.com/snapfs/snapfs/a\t2.501s\n"}
{"Action":"pass","Package":"github.com/snapfs/snapfs/a","Elapsed":2.501}
`

const failure = `{"Action":"run","Package":"github.com/snapfs/snapfs/b","Test":"TestBad"}
{"Action":"output","Package":"github.com/snapfs/snapfs/b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"github.com/snapfs/snapfs/b","Test":"TestBad","Output":"    x_test.go:2: it is wrong\n"}
{"Action":"output","Package":"github.com/snapfs/snapfs/b","Test":"TestBad","Output":"--- FAIL: TestBad (0.10s)\n"}
{"Action":"fail","Package":"github.com/snapfs/snapfs/b","Test":"TestBad","Elapsed":0.1}
{"Action":"run","Package":"github.com/snapfs/snapfs/b","Test":"TestHangs"}
{"Action":"output","Package":"github.com/snapfs/snapfs/b","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"github.com/snapfs/snapfs/b","Output":"FAIL\tgithub.com/snapfs/snapfs/b\t0.2s\n"}
{"Action":"fail","Package":"github.com/snapfs/snapfs/b","Elapsed":0.2}
`

func reported(t *testing.T, in string, verbose bool) (out, later string, err error) {
	t.Helper()
	var b strings.Builder
	file := filepath.Join(t.TempDir(), "later")
	r := newReport(&b, verbose)
	if err = r.read(strings.NewReader(in)); err == nil {
		err = r.end(file)
	}
	text, _ := os.ReadFile(file)
	return b.String(), string(text), err
}

func TestAPassIsTheLinesOfPackagesAndTheCosts(t *testing.T) {
	out, later, err := reported(t, events, false)
	if err != nil {
		t.Error(err)
	}
	want := "ok  \tgithub.com/snapfs/snapfs/a\t2.501s\nthe slowest packages:\n     2.5s  a\nthe slowest cases:\n" +
		"     2.0s  a TestGood/part\n     0.5s  a TestGood\n1 packages in 0s: 2 tests and subtests passed, 0 were skipped, and 1 have more to do in make test-long\n"
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if later != "github.com/snapfs/snapfs/a TestGood\n" {
		t.Errorf("make test-long gets %q", later)
	}
}

func TestAFailureIsShownWithWhatItSaid(t *testing.T) {
	out, _, err := reported(t, "a line of the linker\n"+events+failure, false)
	if err == nil || !strings.Contains(err.Error(), "failed: github.com/snapfs/snapfs/b") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"a line of the linker\n", "    x_test.go:2: it is wrong\n--- FAIL: TestBad (0.10s)\npanic: test timed out\nFAIL\tgithub.com/snapfs/snapfs/b\t0.2s\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "=== RUN") {
		t.Errorf("it has the frames of tests:\n%s", out)
	}
}

func TestAVerboseReportHasEveryLine(t *testing.T) {
	out, _, err := reported(t, events, true)
	if err != nil || !strings.Contains(out, "=== RUN   TestGood\n") || !strings.Contains(out, "plays more of") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEventsOfNoPackageAreAnError(t *testing.T) {
	if _, _, err := reported(t, "no Go files\n", false); err == nil {
		t.Error("it passed")
	}
}
