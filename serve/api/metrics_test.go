//go:build linux

package api

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/snapfs/snapfs/serve/metrics"
	"github.com/snapfs/snapfs/serve/telemetry"
)

// The dashboard in examples shows metrics that a server has, by labels that they have. Cost: milliseconds.
func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	m := metrics.New(nil)
	telemetry.NewMetrics(m.Registry())
	found := make(chan *prometheus.Desc, 1000)
	m.Registry().Describe(found)
	close(found)
	fields := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	labels := map[string]string{} // by metric, separated by commas
	for d := range found {
		f := fields.FindStringSubmatch(d.String())
		if f == nil {
			t.Fatalf("cannot read %s", d)
		}
		labels[f[1]] = "," + f[2] + ",instance,job,le," // what Prometheus adds
	}
	data, err := os.ReadFile("../../examples/grafana/snapfs.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	name, used := regexp.MustCompile(`(?:snapfs|process)_[a-z_]+`), regexp.MustCompile(`by \(([a-z, ]+)\)|([a-z]+)=~?"`)
	shown := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			metric := strings.TrimSuffix(name.FindString(target.Expr), "_bucket")
			if labels[metric] == "" {
				t.Errorf("%s: there is no metric %q: %s", panel.Title, metric, target.Expr)
			}
			for _, f := range used.FindAllStringSubmatch(target.Expr, -1) {
				for label := range strings.SplitSeq(strings.ReplaceAll(f[1]+f[2], " ", ""), ",") {
					if !strings.Contains(labels[metric], ","+label+",") {
						t.Errorf("%s: %s has no label %q, only %s", panel.Title, metric, label, labels[metric])
					}
				}
			}
			shown++
		}
	}
	if shown < 10 {
		t.Errorf("the dashboard shows %d values", shown)
	}
}
