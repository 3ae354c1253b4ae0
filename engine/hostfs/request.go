package hostfs

import (
	"context"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
)

func (r *Request) limitsDisk() bool { return LimitsDisk(r.Policy.Limits) }

// A Request says what sandbox is wanted. Its zero value but for Workspace is
// the strict default.
type Request struct {
	// Name, or "" for one made from the workspace's.
	Name string
	// Workspace is the directory that commands start in: absolute.
	Workspace string
	// Backend is a driver's name, or "" for the best that works.
	Backend string
	// Frozen: only backends whose base keeps still will do.
	Frozen bool
	// Policy is what its processes may see and do.
	Policy catalog.Policy
	// Admission says whether it waits for room.
	Admission admission.Options

	limitAt string // where its disk's limit is to be counted: see choose
	// Fill makes its forks what they are to be, however long that takes, before anybody sees
	// it; may be nil. It is called once at most.
	Fill func(ctx context.Context, rec *catalog.Record) error
}
