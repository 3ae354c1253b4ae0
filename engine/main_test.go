package engine_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
)

func drivers() []snapshot.Driver { return []snapshot.Driver{btrfs.Driver(), overlay.Driver()} }

// TestMain makes the test binary its own keeper.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "keeper" {
		if err := keep(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func keep(state, name string) error {
	e, err := engine.Open(context.Background(), engine.Config{State: state, Drivers: drivers()})
	if err != nil {
		return err
	}
	return e.Keep(context.Background(), name)
}
