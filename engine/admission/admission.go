// Package admission decides whether this host has the capacity for one more sandbox, and queues those that it
// cannot run yet.
//
// A running sandbox has a slot: a small file of the state directory that holds the resources that the sandbox
// may use ([Request]), locked by the process that owns the sandbox. The lock, and with it the slot, ends with
// that process.
//
//	DIR/place-N       the slot of a running sandbox while it is locked; otherwise free for reuse
//	DIR/wait-NUMBER   a waiting sandbox while it is locked; the lowest number is served first
//	DIR/gate          locked by the process that decides, while it does
//
// A sandbox without options gets a slot at once, unless the host has almost nothing left. A sandbox with
// options is admitted if the resources of all slots and its own fit into those that the host has available
// (Host.decide).
//
// State directories do not share slots. Sandboxes of another state directory count like other programs: by the
// memory and disk that they use and by the pressure that they cause.
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

// errNoRoom is the ErrBusy that snapfs returns when the host has no capacity for a further sandbox. Its exit
// status, 123, distinguishes it from other errors.
var errNoRoom = errs.NewStatus(123, "no room")

// A Request holds how much memory, disk and processor time a sandbox may use, by its limits, for the decision
// whether the host has room for it. Zero means no limit.
type Request struct {
	// Memory and Disk are in bytes.
	Memory     int64   `json:"memory"`
	Disk       int64   `json:"disk"`
	Processors float64 `json:"processors"`
}

// The memory, disk space (bytes) and processors that a sandbox without a limit counts for when snapfs decides
// whether the host has the capacity for another one; less on a small host.
const (
	assumedMemory     = 512 << 20 // or an eighth of all
	assumedDisk       = 256 << 20 // or a sixteenth of all
	assumedProcessors = 1
)

// Options are the user's conditions for starting a sandbox on a busy host: wait for capacity, or fail without
// it. The zero value starts the sandbox now, unless the host has almost nothing left.
type Options struct {
	// Queue is how long to wait for capacity; 0 does not wait.
	Queue time.Duration
	// IfRoom returns an error instead of waiting.
	IfRoom bool
	// Waiting, unless nil, is called at the start of a wait and whenever its arguments change: the number of
	// sandboxes before this one and, for the first, the reason of the wait.
	Waiting func(before int, why string)
}

// Plain reports whether the user set no condition: the sandbox neither waits nor fails for lack of capacity,
// unless the host has almost nothing left.
func (w Options) Plain() bool { return w.Queue == 0 && !w.IfRoom }

// A Controller decides whether the host has the capacity for a further sandbox, and gives the sandbox a slot,
// its permission to run.
type Controller struct {
	dir string
	// glance measures only free memory and disk; look measures the whole host. Tests replace
	// both.
	glance, look func() (Host, error)
}

// Open returns the controller for the slots in dir, a directory of the state directory state. dir is created
// on the first write, readable by its owner alone. ceiling is a function that lowers the resources of a host
// to the limits of this process's control groups. Cost: none.
func Open(dir, state string, ceiling func(Host) (Host, error)) *Controller {
	return &Controller{
		dir:    dir,
		glance: func() (Host, error) { return measureFree(state) },
		look: func() (Host, error) {
			h, err := measureHost(state)
			if err != nil {
				return h, err
			}
			return ceiling(h)
		},
	}
}

// Enter returns a slot, the permission to run a sandbox that may use the resources a. It waits for capacity
// first if the options w say so. The caller closes the slot when the sandbox has ended.
//
// Errors: ErrBusy (the host has no capacity); ErrNoSpace if the disk is full; ErrInterrupted if ctx ends
// during the wait. Cost: 20 µs without options.
func (c *Controller) Enter(ctx context.Context, a Request, w Options) (*Slot, error) {
	h, err := c.glance()
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
		return c.wait(ctx, a, w)
	}
	if h.MemoryFree < leastMemory {
		return nil, noRoom("only " + units.SizeText(h.MemoryFree) + " of memory are left")
	}
	return c.take(a)
}

const starting = "starting a sandbox"

func noRoom(why string) error {
	return &errs.Error{
		Op: starting, Kind: errs.ErrBusy, Err: fmt.Errorf("%w: %s", errNoRoom, why),
		Hints: []string{"snapfs stats"},
	}
}

func failed(err error) error {
	return &errs.Error{Op: starting, Kind: cmp.Or(errs.KindOf(err), errs.ErrNotSupported), Err: err}
}
