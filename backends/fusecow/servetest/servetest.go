//go:build linux

// Package servetest lets a test binary be the program that serves fusecow's trees,
// so that tests need no other one built beside it.
package servetest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
)

const word = "serve"

// Program is how this binary is started to serve a tree, for [fusecow.Driver]
// and what is built on it.
func Program() ([]string, error) { return []string{"/proc/self/exe", word}, nil }

// Main serves a tree if this process was started as [Program] says, and runs the
// tests otherwise. It is for TestMain, and does not return.
func Main(m *testing.M) {
	if len(os.Args) != 2 || os.Args[1] != word {
		os.Exit(m.Run())
	}
	if err := fusecow.Serve(context.Background(), mount.Mount); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
