// Package poll waits for what no system call waits for.
package poll

import (
	"context"
	"time"
)

// Until calls ask until it returns true or an error, and sleeps between two calls: first for a
// duration, then for twice as long each time, up to most. Errors: those of ask, or ctx.Err() once
// ctx has ended.
func Until(ctx context.Context, first, most time.Duration, ask func() (done bool, err error)) error {
	for wait := first; ; wait = min(2*wait, most) {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
