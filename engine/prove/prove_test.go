package prove

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// Without a report the attempt counts as failed isolation, unless isolation kills.
func TestReadCountsMissingReportsAsFailures(t *testing.T) {
	announced := `{"probe":"memory","tried":"use it","happened":"","held":false}` + "\n"
	for name, c := range map[string]struct {
		probe, output string
		killed        bool
		held          bool
		happened      string
	}{
		"a report":                   {"memory", announced + `{"probe":"memory","tried":"use it","happened":"no","held":true}` + "\n", false, true, "no"},
		"a report of a killed one":   {"memory", announced + `{"probe":"memory","tried":"use it","happened":"yes","held":false}` + "\n", true, false, "yes"},
		"killed by the wall":         {"memory", announced, true, true, "it was killed"},
		"killed before it tried":     {"memory", "", true, false, "could not be tried: the process was killed"},
		"killed where no wall kills": {"files", strings.ReplaceAll(announced, "memory", "files"), true, false, "could not be tried: the process was killed"},
		"ended silently":             {"memory", announced, false, false, "could not be tried: the process ended without a report"},
		"another's report":           {"files", announced, false, false, "could not be tried: the process ended without a report"},
		"a claim without a report":   {"memory", `{"probe":"memory","held":true}`, false, false, "could not be tried: the process ended without a report"},
		"half a line":                {"memory", announced + `{"probe":"mem`, true, true, "it was killed"},
	} {
		if r := Read(c.probe, []byte(c.output), c.killed); r.Held != c.held || r.Happened != c.happened || r.Probe != c.probe || r.Tried == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A probe without its arguments reports failed isolation, and every listed probe is known.
func TestProbeWithoutArgumentsFails(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range List() {
		if seen[p.Name] || p.Name == "" {
			t.Errorf("%q is there twice", p.Name)
		}
		seen[p.Name] = true
		if len(p.Args) == 0 {
			continue
		}
		for _, args := range [][]string{nil, make([]string, len(p.Args)-1)} {
			var out bytes.Buffer
			if code := Run(p.Name, args, &out); code != ExitCrossed {
				t.Errorf("%s %q: exit status %d", p.Name, args, code)
			}
			var r Report
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Held || !strings.HasPrefix(r.Happened, "could not be tried: ") {
				t.Errorf("%s: %+v, %v", p.Name, r, err)
			}
		}
	}
	for name, args := range map[string][]string{
		"memory": {"-1"}, "pids": {"1000000"}, "files": {"many"}, "cpus": {"NaN"}, "cpu-time": {"3"}, "time": {"-1s"},
		"name": {"example.com"}, "ipv4": {"localhost:80"}, "resolver": {"1.1.1.1:53", ""}, "loopback": {"x"}, "see-process": {"0", "1"},
	} {
		var out bytes.Buffer
		if code := Run(name, args, &out); code != ExitCrossed || !strings.Contains(out.String(), "could not be tried") {
			t.Errorf("%s %q: %d, %s", name, args, code, &out)
		}
	}
	if code := Run("no-such-wall", nil, nil); code != ExitUsage {
		t.Errorf("an unknown probe: %d", code)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("nobody listens") }

func TestUnwritableReportFails(t *testing.T) {
	if code := Run("terminal", nil, broken{}); code != ExitCrossed {
		t.Errorf("exit status %d", code)
	}
}
