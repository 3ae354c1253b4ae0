//go:build linux

package fusecow_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// TestMain makes the test binary the program that serves trees.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		if err := fusecow.Serve(context.Background(), mount.Mount); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func driver() snapshot.Driver {
	return fusecow.Driver(func() ([]string, error) { return []string{"/proc/self/exe", "serve"}, nil })
}
