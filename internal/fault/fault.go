// Package fault lets a test make any one step of an operation fail, or kill the process there,
// to check what is left behind.
//
// An operation calls [Point] before each step that changes state outside the process. Without
// a plan in the context a point costs one lookup, some nanoseconds.
package fault

import "context"

// A Plan is called at every point with the name of the next step. If it returns an error, the
// step is not executed and fails with that error. A Plan must be safe for concurrent use, and
// may block forever, for a test that kills the process there.
type Plan func(step string) error

type key struct{}

// With returns a context whose operations follow plan.
func With(ctx context.Context, plan Plan) context.Context {
	return context.WithValue(ctx, key{}, plan)
}

// Point marks a step, named in a few words ("rename the copy into place"). Without a plan in
// ctx it returns nil; with one, the plan's error.
func Point(ctx context.Context, step string) error { return Of(ctx).Point(step) }

// Of returns the plan of ctx, or nil. It is for objects that outlive one operation and have no
// context of their own.
func Of(ctx context.Context) Plan {
	plan, _ := ctx.Value(key{}).(Plan)
	return plan
}

// Point does the same as the function [Point] under this plan, which may be nil.
func (p Plan) Point(step string) error {
	if p == nil {
		return nil
	}
	return p(step)
}
