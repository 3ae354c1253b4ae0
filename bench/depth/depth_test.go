//go:build linux

package depth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/snapfs/snapfs/bench/depth"
	"github.com/snapfs/snapfs/internal/run"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == depth.Role {
		if err := depth.Measure(context.Background(), os.Args[2], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestWhatACommandLeavesRunningIsMeasured: a shell ends at once and leaves a loop behind.
func TestWhatACommandLeavesRunningIsMeasured(t *testing.T) {
	const loop = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done) &"
	order, err := json.Marshal(map[string]any{"Path": "/bin/sh", "Args": []string{"-c", loop}, "Env": os.Environ(), "Dir": "/"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run.Run(t.Context(), run.Program{Name: "/proc/self/exe", Args: []string{depth.Role, string(order)}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	var got struct{ CPU, Tree, Wall time.Duration }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Wall <= 0 || got.Tree < 10*time.Millisecond || got.Tree < 2*got.CPU {
		t.Errorf("the shell took %v in %v and with the loop %v; want more with the loop", got.CPU, got.Wall, got.Tree)
	}
}
