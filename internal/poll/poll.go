// Package poll waits for conditions that no system call can wait for, such as the end of the last process in
// a control group: it checks the condition again and again, with growing pauses.
package poll

import (
	"context"
	"time"
)

// Until calls ask, which checks a condition, until it returns true or an error. It sleeps between two calls:
// for the duration first, then twice as long each time, up to most. Errors: those of ask, or ctx.Err() once
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

// Sleep sleeps for the time d, or until ctx ends if that is sooner.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
