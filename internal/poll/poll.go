// Package poll waits for events that no system call waits for, by asking repeatedly.
package poll

import (
	"context"
	"time"
)

// Until calls ask until it returns true or an error. It sleeps between two calls: for the duration first,
// then twice as long each time, up to most. Errors: those of ask, or ctx.Err() once ctx has ended.
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
