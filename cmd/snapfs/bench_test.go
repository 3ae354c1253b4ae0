package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/bench"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// benched runs snapfs bench with the arguments and answers with its report.
func benched(t *testing.T, args ...string) bench.Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report")
	err := run.Run(t.Context(), run.Program{Name: program(), Args: append([]string{"bench", "--quick", "--json", "-o", file}, args...)})
	var report bench.Report
	data, rerr := os.ReadFile(file)
	if rerr != nil {
		t.Fatal(err, rerr)
	}
	if jerr := json.Unmarshal(data, &report); jerr != nil || err != nil {
		t.Fatal(err, jerr)
	}
	return report
}

func TestBenchMeasuresEverythingAndLeavesNothing(t *testing.T) {
	treetest.Leaks(t)
	rows := map[string]int{}
	report := benched(t)
	for _, r := range report.Results {
		switch {
		case r.Error == "" && (r.N == 0 || r.Min <= 0 || r.P50 < r.Min || r.P99 < r.P50):
			t.Errorf("%s, %s, %s: %+v", r.Kind, r.What, r.Setting, r.Summary)
		case r.Error != "" && r.Kind != "peers" && os.Geteuid() == 0:
			t.Errorf("%s, %s, %s: %s", r.Kind, r.What, r.Setting, r.Error)
		case r.Error == "":
			rows[r.Kind]++
		}
	}
	for _, kind := range bench.Kinds() {
		if rows[kind] < 3 {
			t.Errorf("%d results of the kind %s", rows[kind], kind)
		}
	}
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if len(host) > 3 && strings.Contains(string(data), host) {
		t.Error("the report names this machine")
	}
	if left, _ := filepath.Glob("/var/tmp/snapfs-bench-*-*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
