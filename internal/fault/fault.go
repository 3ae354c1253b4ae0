// Package fault lets a test make any one step of an operation fail, or kill the process there, to see what is
// left behind.
//
// An operation calls [Point] before each step that changes state outside the process. Without a plan in the
// context a point costs one lookup, some nanoseconds; the product contains nothing else of it.
// nanoseconds; it is the only trace of the rehearsal in the product.
package fault

import "context"

// Plan is called at every point with the name of the next step. If it returns an error, the step is not
// executed and fails with that error. A Plan must be safe for concurrent use, and may never return (to be
// killed there).
type Plan func(step string) error

type key struct{}

// With returns a context whose operations follow plan.
func With(ctx context.Context, plan Plan) context.Context {
	return context.WithValue(ctx, key{}, plan)
}

// Point marks a step, named in a few words ("rename the copy into place"). It returns nil except under a plan.
func Point(ctx context.Context, step string) error { return Of(ctx).Point(step) }

// Of returns the plan of ctx, or nil: for code that outlives one operation and has no context of its own.
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
