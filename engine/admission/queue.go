package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A ticket is the position of a waiting sandbox in the queue for capacity: a numbered file that its process
// has open and locked.
type ticket struct {
	number uint64
	f      *os.File
}

const ticketPrefix = "wait-"

func (c *Controller) ticket(number uint64) string {
	return filepath.Join(c.dir, fmt.Sprintf("%s%016d", ticketPrefix, number))
}

// wait returns a slot for a sandbox whose user set conditions: it waits for capacity if they allow it, and
// returns an error if they do not or the time is over.
func (c *Controller) wait(ctx context.Context, a Request, w Options) (*Slot, error) {
	p, t, answer, err := c.arrive(ctx, a, w)
	if p != nil || err != nil {
		return p, err
	}
	defer t.leave()
	patience, cancel := context.WithTimeout(ctx, w.Queue)
	defer cancel()
	told, first := -1, time.Time{}
	for {
		before, err := c.before(t)
		if err != nil {
			return nil, failed(err)
		}
		if before == 0 {
			if first.IsZero() {
				first = time.Now()
			}
			p, now, err := c.tryFirst(patience, a, t)
			if p != nil || err != nil && patience.Err() == nil {
				return p, err
			}
			if now != nil {
				answer = now
			}
		}
		if w.Waiting != nil && before != told {
			w.Waiting(before, answer.Why)
			told = before
		}
		select {
		case <-patience.Done():
			if ctx.Err() != nil {
				return nil, &errs.Error{Op: "waiting for room", Kind: errs.ErrInterrupted, Err: ctx.Err()}
			}
			why := answer.Why
			if before > 0 {
				why = strconv.Itoa(before) + " before it wait too"
			}
			return nil, noRoom("there was none in " + units.FormatDuration(w.Queue) + ": " + why)
		case <-time.After(pause(before, first)):
		}
	}
}

// pause returns how long a process in the queue for capacity sleeps until its next check. before is the
// number of processes before it, and first the time at which it became the first. The first checks most
// often, and less often over time: freed memory and disk space cause no notification.
func pause(before int, first time.Time) time.Duration {
	if before > 0 {
		return min(time.Duration(before)*10*time.Millisecond, 250*time.Millisecond)
	}
	return max(5*time.Millisecond, min(time.Since(first)/20, 50*time.Millisecond))
}

// arrive returns a slot for a sandbox at once if the queue is empty and the host has the capacity. Otherwise
// it returns a ticket in the queue and the reason of the wait, or an error if the options do not allow
// waiting.
func (c *Controller) arrive(ctx context.Context, a Request, w Options) (*Slot, *ticket, *Refusal, error) {
	gate, err := c.gate(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer vfs.Unlock(gate)
	waiting, err := c.waiting()
	if err != nil {
		return nil, nil, nil, failed(err)
	}
	answer, err := c.decide(a)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case answer == nil && len(waiting) == 0:
		p, err := c.take(a)
		return p, nil, nil, err
	case answer == nil:
		answer = &Refusal{Why: strconv.Itoa(len(waiting)) + " wait before it"}
	}
	if w.Queue == 0 || answer.Never {
		return nil, nil, nil, noRoom(answer.Why)
	}
	number := uint64(1)
	if len(waiting) > 0 {
		number = slices.Max(waiting) + 1
	}
	f, err := c.lock(c.ticket(number))
	if err == nil && f == nil {
		err = errors.New(c.ticket(number) + " is in use")
	}
	if err != nil {
		return nil, nil, nil, failed(err)
	}
	return nil, &ticket{number: number, f: f}, answer, nil
}

// tryFirst returns a slot for the sandbox that is the first in the queue, with the ticket t, if the host has
// the capacity now. Otherwise it returns the reason.
func (c *Controller) tryFirst(ctx context.Context, a Request, t *ticket) (*Slot, *Refusal, error) {
	gate, err := c.gate(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer vfs.Unlock(gate)
	answer, err := c.decide(a)
	if answer != nil || err != nil {
		return nil, answer, err
	}
	p, err := c.take(a)
	if err == nil {
		t.leave() // the next in the queue may check at once
	}
	return p, nil, err
}

// decide returns why the host has no capacity now for a sandbox with the limits a, or nil if it has. The
// caller holds the lock of [Controller.gate].
func (c *Controller) decide(a Request) (*Refusal, error) {
	given, err := c.given()
	if err != nil {
		return nil, failed(err)
	}
	h, err := c.look()
	if err != nil {
		return nil, failed(err)
	}
	return h.decide(given, a), nil
}

// gate takes the lock under which one process at a time decides about capacity, and waits for it until ctx
// ends. Closing the file releases it.
func (c *Controller) gate(ctx context.Context) (*os.File, error) {
	for {
		f, err := c.lock(filepath.Join(c.dir, "gate"))
		if err != nil {
			return nil, failed(err)
		}
		if f != nil {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return nil, &errs.Error{Op: "waiting for room", Kind: errs.ErrInterrupted, Err: ctx.Err()}
		case <-time.After(time.Millisecond):
		}
	}
}

// numbers returns the numbers of all tickets, the files of sandboxes that wait in the queue for capacity,
// including those of dead processes.
func (c *Controller) numbers() ([]uint64, error) {
	names, err := c.names(ticketPrefix)
	var list []uint64
	for _, name := range names {
		if n, err := strconv.ParseUint(strings.TrimPrefix(name, ticketPrefix), 10, 64); err == nil {
			list = append(list, n)
		}
	}
	return list, err
}

// waiting returns the numbers of the tickets, the files of sandboxes that wait in the queue for capacity, and
// removes tickets of dead processes. The caller holds the lock of [Controller.gate].
func (c *Controller) waiting() ([]uint64, error) {
	list, err := c.numbers()
	return slices.DeleteFunc(list, c.stale), err
}

// before returns how many sandboxes wait for capacity before the one with the ticket t, which is its numbered
// file in the queue. It checks only the ticket directly before t: if its process is dead, it removes that
// ticket and continues with the one before.
func (c *Controller) before(t *ticket) (int, error) {
	for {
		list, err := c.numbers()
		if err != nil {
			return 0, err
		}
		list = slices.DeleteFunc(list, func(n uint64) bool { return n >= t.number })
		if len(list) == 0 || !c.stale(slices.Max(list)) {
			return len(list), nil
		}
	}
}

// stale removes the ticket with this number, the file of a waiting sandbox, from the queue for capacity if no
// process holds its lock. It reports whether the ticket does not exist any more. A process locks its ticket
// before it releases [Controller.gate], so an older ticket without a lock belongs to a dead process.
func (c *Controller) stale(number uint64) bool {
	path := c.ticket(number)
	f, err := os.Open(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	if vfs.Flock(f, syscall.LOCK_SH|syscall.LOCK_NB) != nil {
		return false
	}
	err = os.Remove(path)
	return err == nil || errors.Is(err, os.ErrNotExist)
}

// leave removes the ticket, the place of one waiting sandbox, from the queue for capacity. It may be called
// twice.
func (t *ticket) leave() {
	if t.f != nil {
		_ = os.Remove(t.f.Name()) // the next process finds the file unlocked
		vfs.Unlock(t.f)
		t.f = nil
	}
}
