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
func Point(ctx context.Context, step string) error { return Of(ctx).Point(step) }

// Of is the plan that operations with ctx follow, nil where there is none: for
// what outlives one operation and has no context of its own.
func Of(ctx context.Context) Plan {
	plan, _ := ctx.Value(key{}).(Plan)
	return plan
}

// Point is [Point] under this plan, which may be nil.
func (p Plan) Point(step string) error {
	if p == nil {
		return nil
	}
	return p(step)
}
