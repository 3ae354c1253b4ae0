//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// full returns a filesystem with that many files, which use up its quota.
func full(t testing.TB, files int) *layer.FS {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := treetest.Dir(t)
	f, err := layer.Open(layer.Options{Lower: t.TempDir(), Layers: []string{dir + "/layer"}})
	must(err)
	t.Cleanup(func() { must(f.Close()) })
	q, err := quota.Open(dir + "/quota")
	must(err)
	must(f.SetQuota(q, f.Paths()))
	for i := range files {
		_, err := f.Make(layer.RootID, layer.New{Name: fmt.Sprint(i), Mode: unix.S_IFREG | 0o644})
		must(err)
	}
	must(f.Commit(false))
	q.SetLimit(q.Used())
	return f
}

// refusal returns the shortest time in which creating another file fails.
func refusal(t testing.TB, f *layer.FS) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 20 {
		began := time.Now()
		if _, err := f.Make(layer.RootID, layer.New{Name: "more", Mode: unix.S_IFREG}); !errors.Is(err, unix.EDQUOT) {
			t.Fatalf("one file more: %v, want EDQUOT", err)
		}
		took = append(took, time.Since(began))
	}
	return slices.Min(took)
}

// TestFullQuotaFailsAtOnce, however many files are known: a program that retries would otherwise block all
// others.
func TestFullQuotaFailsAtOnce(t *testing.T) {
	few, many := refusal(t, full(t, 100)), refusal(t, full(t, 50_000))
	t.Logf("with 100 files %v, with 50000 %v", few, many)
	if many > 10*few+100*time.Microsecond {
		t.Errorf("with 100 files it takes %v to say that there is no room, with 50000 %v", few, many)
	}
}

func BenchmarkFullQuotaWithAMillionFiles(b *testing.B) {
	f := full(b, 1_000_000)
	for b.Loop() {
		_, _ = f.Make(layer.RootID, layer.New{Name: "more", Mode: unix.S_IFREG})
	}
}
