// Package fault lets a test make any one step of an operation fail, or end the
// process there, to see what is left behind.
//
// An operation calls [Point] before each step that changes something outside
// the process. Without a plan in the context a point costs one lookup, some
// nanoseconds; it is the only trace of the rehearsal in the product.
package fault

import "context"

// A Plan is called at every point with the name of the step about to be made.
// The error it returns becomes the step's own: the step is not made. It must
// be safe for several goroutines, and may never return (to be killed there).
type Plan func(step string) error

type key struct{}

// With returns a context whose operations follow plan.
func With(ctx context.Context, plan Plan) context.Context {
	return context.WithValue(ctx, key{}, plan)
}

// Point marks the step named, in a few words ("rename the copy into place").
// It answers nil except under a plan.
func Point(ctx context.Context, step string) error {
	plan, ok := ctx.Value(key{}).(Plan)
	if !ok {
		return nil
	}
	return plan(step)
}
