package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/race"
)

// raced is a race with a check, the second of whose attempts is kept as "k-2".
func raced() operation {
	return operation{
		do: func(ctx context.Context, b *bench) error {
			req := b.tries("echo x > new", "echo x > new")
			req.Name = "k"
			check := b.command("touch built")
			req.Check = &check
			r, err := race.New(b.Engine).Race(ctx, req)
			if err != nil {
				return err
			}
			if len(r.Passed()) != 2 {
				err = fmt.Errorf("%+v", r.Attempts)
			} else {
				_, err = r.Keep(ctx, 2)
			}
			return errors.Join(err, r.Close(ctx))
		},
		done: func(b *bench) bool { _, err := b.Show(context.Background(), "k-2"); return err == nil },
		clear: func(b *bench) {
			if err := b.Remove(context.Background(), "k-2"); err != nil && !errors.Is(err, errs.ErrNotFound) {
				b.t.Error(err)
			}
		},
	}
}

func TestARaceKilledAtAnyStepIsMendedByTheNextCommand(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		newBench(t).rehearseAll("kill", 1, "race")
	})
	if !later(t) {
		return
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			newBench(t).rehearseAll("kill", 61, "race")
		}
	})
	onBtrfs(t, func(_ *testing.T, b *bench) { b.rehearseAll("kill", 9, "race") })
}

func TestAStepOfARaceThatFailsLeavesNothingHalfDone(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		newBench(t).rehearseAll("fail", 1, "race")
	})
	onBtrfs(t, func(_ *testing.T, b *bench) { b.rehearseAll("fail", 9, "race") })
}
