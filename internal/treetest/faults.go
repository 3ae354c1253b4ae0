//go:build linux

package treetest

import (
	"context"

	"github.com/snapfs/snapfs/internal/fault"
)

// WithFaults returns a context in which steps of operations fail as plan decides. A test passes it to the operation
// under test.
func WithFaults(ctx context.Context, plan fault.Plan) context.Context {
	return context.WithValue(ctx, fault.Key{}, plan)
}
