package hostfs

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/catalog"
)

// A Request describes a wanted sandbox. With only Workspace set, it requests the strictest
// policy.
type Request struct {
	// Name is the sandbox's name, or "" for one derived from the workspace's.
	Name string
	// Workspace is the absolute path of the directory that commands start in.
	Workspace string
	// Backend is a driver's name, or "" for the first that works.
	Backend string
	// Frozen requires a backend whose base never changes.
	Frozen bool
	// Policy is the policy for the sandbox's processes.
	Policy catalog.Policy
	// Admission are the conditions under which the sandbox starts, such as waiting for a slot.
	Admission admission.Options

	// Search is a search for secrets that the caller has started, or nil. See FreshSearch.
	Search *Search

	// limitAt is the required limit place, see Choose.
	limitAt string
	// Fill writes content into the forks before the sandbox is visible to other commands. It
	// may be nil, is called at most once, and may take long.
	Fill func(ctx context.Context, rec *catalog.Record) error
}

// FreshSearch returns r.Search, or starts a new search if there is none or if it is older than freshTime.
func (r *Request) FreshSearch() *Search {
	if r.Search == nil || time.Since(r.Search.began) > freshTime {
		return SearchSecrets()
	}
	return r.Search
}

// freshTime bounds the time from the beginning of a search for secrets to the start of the sandbox that hides the
// found paths. A request that waits for capacity exceeds it.
const freshTime = 50 * time.Millisecond
