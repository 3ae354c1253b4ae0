package fault_test

import (
	"context"
	"errors"
	"testing"

	"github.com/snapfs/snapfs/internal/fault"
)

func TestPointFollowsThePlanAndOnlyThePlan(t *testing.T) {
	if err := fault.Point(context.Background(), "write"); err != nil {
		t.Fatal("a point failed without a plan:", err)
	}
	broken := errors.New("broken")
	ctx := context.WithValue(context.Background(), fault.Key{}, fault.Plan(func(step string) error {
		if step == "rename" {
			return broken
		}
		return nil
	}))
	if err := fault.Point(ctx, "write"); err != nil {
		t.Error("the wrong step failed:", err)
	}
	if err := fault.Point(context.WithoutCancel(ctx), "rename"); !errors.Is(err, broken) {
		t.Errorf("the planned step gave %v", err)
	}
}

func TestPointAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = fault.Point(ctx, "write") }); n != 0 {
		t.Errorf("a point allocates %v times", n)
	}
}
