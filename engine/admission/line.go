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

// A ticket is the right to be served after those with a lower number.
type ticket struct {
	number uint64
	f      *os.File
}

const ticketPrefix = "wait-"

func (b *Book) ticket(number uint64) string {
	return filepath.Join(b.dir, fmt.Sprintf("%s%016d", ticketPrefix, number))
}

// inLine admits one who wants room.
func (b *Book) inLine(ctx context.Context, a Ask, w When) (*Place, error) {
	p, t, answer, err := b.arrive(ctx, a, w)
	if p != nil || err != nil {
		return p, err
	}
	defer t.leave()
	patience, cancel := context.WithTimeout(ctx, w.Queue)
	defer cancel()
	told, first := -1, time.Time{}
	for {
		before, err := b.before(t)
		if err != nil {
			return nil, failed(err)
		}
		if before == 0 {
			if first.IsZero() {
				first = time.Now()
			}
			p, now, err := b.step(patience, a, t)
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

// pause is how long one waits who is this far behind. Who is first looks most often, and
// less often when that takes long: what frees memory or a disk tells nobody.
func pause(before int, first time.Time) time.Duration {
	if before > 0 {
		return min(time.Duration(before)*10*time.Millisecond, 250*time.Millisecond)
	}
	return max(5*time.Millisecond, min(time.Since(first)/20, 50*time.Millisecond))
}

// arrive admits at once where nobody waits and there is room. Otherwise: a ticket, with
// what keeps it waiting, or an error where it does not want to wait.
func (b *Book) arrive(ctx context.Context, a Ask, w When) (*Place, *ticket, *Answer, error) {
	gate, err := b.gate(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer vfs.Unlock(gate)
	waiting, err := b.waiting()
	if err != nil {
		return nil, nil, nil, failed(err)
	}
	answer, err := b.decide(a)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case answer == nil && len(waiting) == 0:
		p, err := b.take(a)
		return p, nil, nil, err
	case answer == nil:
		answer = &Answer{Why: strconv.Itoa(len(waiting)) + " wait before it"}
	}
	if w.Queue == 0 || answer.Never {
		return nil, nil, nil, noRoom(answer.Why)
	}
	number := uint64(1)
	if len(waiting) > 0 {
		number = slices.Max(waiting) + 1
	}
	f, err := b.lock(b.ticket(number), syscall.LOCK_EX)
	if err == nil && f == nil {
		err = errors.New(b.ticket(number) + " is in use")
	}
	if err != nil {
		return nil, nil, nil, failed(err)
	}
	return nil, &ticket{number: number, f: f}, answer, nil
}

// step admits the first in line if there is room now.
func (b *Book) step(ctx context.Context, a Ask, t *ticket) (*Place, *Answer, error) {
	gate, err := b.gate(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer vfs.Unlock(gate)
	answer, err := b.decide(a)
	if answer != nil || err != nil {
		return nil, answer, err
	}
	p, err := b.take(a)
	if err == nil {
		t.leave() // the next one may look at once
	}
	return p, nil, err
}

// decide asks whether there is room now. The caller has the gate.
func (b *Book) decide(a Ask) (*Answer, error) {
	given, err := b.given()
	if err != nil {
		return nil, failed(err)
	}
	h, err := b.look()
	if err != nil {
		return nil, failed(err)
	}
	return h.Decide(given, a), nil
}

// gate waits until nobody else decides.
func (b *Book) gate(ctx context.Context) (*os.File, error) {
	for {
		f, err := b.lock(filepath.Join(b.dir, "gate"), syscall.LOCK_EX)
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

// numbers are those of all tickets, also of who has gone.
func (b *Book) numbers() ([]uint64, error) {
	names, err := b.names(ticketPrefix)
	var list []uint64
	for _, name := range names {
		if n, err := strconv.ParseUint(strings.TrimPrefix(name, ticketPrefix), 10, 64); err == nil {
			list = append(list, n)
		}
	}
	return list, err
}

// waiting are the numbers of those who wait. Tickets of killed processes are removed.
// The caller has the gate.
func (b *Book) waiting() ([]uint64, error) {
	list, err := b.numbers()
	return slices.DeleteFunc(list, b.gone), err
}

// before counts those who are served before t. Only the last of them is looked at: when
// it has gone without a word, its ticket is removed, and the one before it is next.
func (b *Book) before(t *ticket) (int, error) {
	for {
		list, err := b.numbers()
		if err != nil {
			return 0, err
		}
		list = slices.DeleteFunc(list, func(n uint64) bool { return n >= t.number })
		if len(list) == 0 || !b.gone(slices.Max(list)) {
			return len(list), nil
		}
	}
}

// gone removes the ticket of one who does not wait any more. A ticket is locked before
// who has the gate lets it go, so one that is not locked, and older, is nobody's.
func (b *Book) gone(number uint64) bool {
	path := b.ticket(number)
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

// leave gives the ticket back. Leaving twice is harmless.
func (t *ticket) leave() {
	if t.f != nil {
		_ = os.Remove(t.f.Name()) // whoever comes next sees that nobody has it
		vfs.Unlock(t.f)
		t.f = nil
	}
}
