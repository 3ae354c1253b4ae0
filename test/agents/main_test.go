//go:build linux

package agents

import (
	"context"
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(func() int { return treetest.Shards(m) }, func(context.Context, string) error { return nil }))
}
