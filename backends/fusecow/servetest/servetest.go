//go:build linux

// Package servetest lets a test binary act as its own server of fusecow trees, so that tests
// need no second program.
package servetest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

const word = "serve"

// Program returns the command that makes this test binary serve a tree as a process of its own. A
// [snapshot.Place] takes it as Server.
func Program() ([]string, error) { return []string{"/proc/self/exe", word}, nil }

// Driver returns the driver d with this test binary as the server of its trees.
func Driver(d snapshot.Driver) snapshot.Driver {
	open := d.Open
	d.Open = func(ctx context.Context, place snapshot.Place) (snapshot.Backend, error) {
		place.Server = Program
		return open(ctx, place)
	}
	return d
}

// Main serves a tree if this process was started by [Program], and runs the tests otherwise. TestMain calls it.
// It does not return.
func Main(m *testing.M) {
	if len(os.Args) != 2 || os.Args[1] != word {
		os.Exit(treetest.Shards(m))
	}
	if err := fusecow.Serve(context.Background(), mount.Mount); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
