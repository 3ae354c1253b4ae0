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
	"github.com/snapfs/snapfs/internal/treetest"
)

const word = "serve"

// Program returns the command that makes this test binary serve a tree as a process of its own. Tests pass it
// to [fusecow.Driver] and to backends built on it.
func Program() ([]string, error) { return []string{"/proc/self/exe", word}, nil }

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
