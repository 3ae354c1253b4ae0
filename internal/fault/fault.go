// Package fault lets a test make any one step of an operation fail, or kill the process there, to check which
// state the operation leaves behind.
//
// An operation calls [Point] before each step that changes state outside the process. Without a [Plan] in the
// context, such a call costs one lookup, some nanoseconds.
package fault

import "context"

// A Plan is a test's function that decides which step of an operation fails. It is called before each step,
// with the step's name. If it returns an error, the step is not executed and fails with that error. A Plan
// must be safe for concurrent use, and may block forever, for a test that kills the process there.
type Plan func(step string) error

// Key is the key of the [Plan] in a context. A test sets it with treetest.WithFaults.
type Key struct{}

// Point is called before a step of an operation, which it names in a few words ("rename the copy into
// place"). It returns the error with which the step must fail, from the plan in ctx; without a plan, nil.
func Point(ctx context.Context, step string) error { return Of(ctx).Point(step) }

// Of returns the plan of ctx, by which a test lets steps fail, or nil. It is for objects that outlive one
// operation and have no context of their own.
func Of(ctx context.Context) Plan {
	plan, _ := ctx.Value(Key{}).(Plan)
	return plan
}

// Point asks the plan, which may be nil, whether a step fails, as the function [Point] does for a context.
func (p Plan) Point(step string) error {
	if p == nil {
		return nil
	}
	return p(step)
}
