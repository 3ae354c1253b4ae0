// Package admission decides whether there is room on this host for one more sandbox,
// and has those wait in line for whom there is none.
//
// What runs has a place: a small file of the state directory that says what the
// sandbox may come to use ([Ask]), locked by the process that holds the sandbox. The
// lock ends with that process, however it ends, and with it the place.
//
//	DIR/place-N       one sandbox that runs, while somebody has it locked; else one to be used again
//	DIR/wait-NUMBER   one who waits, while it is locked; the lowest number is served first
//	DIR/gate          locked by who decides, for that moment
//
// Whoever asks for nothing gets a place at once, unless next to nothing is left
// ([Host.Scarce]). Others are admitted where what all places may come to use, and what
// they ask for, fits into what the host has now ([Host.Decide]).
//
// State directories do not know each other's places. What runs from another one is
// seen as everything else on the host is: by the memory and disk that it has taken, and
// by the pressure that it makes.
package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// ErrNoRoom says that a sandbox was not started because the host has no room for it.
// Such an error is an ErrBusy of the contract.
var ErrNoRoom = errs.NewStatus(123, "no room")

// An Ask is what a sandbox may come to use: its limits, zero where it has none.
type Ask struct {
	// Memory and Disk are in bytes.
	Memory     int64   `json:"memory"`
	Disk       int64   `json:"disk"`
	Processors float64 `json:"processors"`
}

// What a sandbox without a limit is counted with; on a small host, with less.
const (
	assumedMemory     = 512 << 20 // or an eighth of all
	assumedDisk       = 256 << 20 // or a sixteenth of all
	assumedProcessors = 1
)

// A When says under which circumstances a sandbox is started. Its zero value: now,
// unless next to nothing is left.
type When struct {
	// Queue is how long to wait in line until there is room; 0 is not to.
	Queue time.Duration
	// IfRoom refuses where it would have to wait.
	IfRoom bool
	// Waiting is told when somebody begins to wait, and whenever that has changed: how
	// many wait before it, and, where nobody does, for what it waits. May be nil.
	Waiting func(before int, why string)
}

// Plain reports whether nothing is asked for but to be started.
func (w When) Plain() bool { return w.Queue == 0 && !w.IfRoom }

// A Book knows what places are given.
type Book struct {
	dir string
	// glance tells what is free, and look all of a host.
	glance, look func() (Host, error)
}

// Open answers with the book in a directory of the state directory, which is made when
// it is first written to, readable by its owner alone. ceiling answers with what the
// control groups of this process leave of a host. Cost: none.
func Open(dir, state string, ceiling func(Host) (Host, error)) *Book {
	return &Book{
		dir:    dir,
		glance: func() (Host, error) { return glance(state) },
		look: func() (Host, error) {
			h, err := look(state)
			if err != nil {
				return h, err
			}
			return ceiling(h)
		},
	}
}

// Enter answers with a place for a sandbox that asks for this much, waiting for it where
// that is wanted. The caller closes it when the sandbox does not run any more.
// Errors: [ErrNoRoom]; errs.ErrNoSpace where the disk is full; ErrInterrupted where
// ctx ended while it waited. Cost: 20 µs without a wish.
func (b *Book) Enter(ctx context.Context, a Ask, w When) (*Place, error) {
	h, err := b.glance()
	if err != nil {
		return nil, failed(err)
	}
	if h.DiskFree < leastDisk {
		return nil, &errs.Error{
			Op: starting, Kind: errs.ErrNoSpace, Err: errors.New("the disk with the state directory is full"),
			Hints: []string{"snapfs gc", "snapfs rm SANDBOX"},
		}
	}
	if !w.Plain() {
		return b.inLine(ctx, a, w)
	}
	if h.MemoryFree < leastMemory {
		return nil, noRoom("only " + units.SizeText(h.MemoryFree) + " of memory are left")
	}
	return b.take(a)
}

const starting = "starting a sandbox"

func noRoom(why string) error {
	return &errs.Error{
		Op: starting, Kind: errs.ErrBusy, Err: fmt.Errorf("%w: %s", ErrNoRoom, why),
		Hints: []string{"snapfs stats"},
	}
}

func failed(err error) error {
	return &errs.Error{Op: starting, Kind: cmp.Or(errs.KindOf(err), errs.ErrNotSupported), Err: err}
}
