//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/overlay/quota"
	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

const name = "overlay"

// Driver is the driver that snapshots any directory of a local filesystem with overlayfs. It stores its
// layers on any local filesystem that overlayfs accepts as an upper.
var Driver = snapshot.Driver{Name: name, Automatic: true, Open: Open}

// Open returns the backend whose data is in place.Dir, for place.Tree or any other tree. It writes
// nothing. Cost: some ten microseconds; for an ordinary user also reading the mount table. Errors:
// ErrNotFound (no such tree), ErrNotSupported with the reason.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	return open(place, nil, nil)
}

func open(place snapshot.Place, storage store.QuotaStorage, served LowerServer) (*Backend, error) {
	userXattr, locked := privilege()
	s := &store.Store{Dir: filepath.Clean(place.Dir), UserXattr: userXattr, Storage: storage, ChainLimits: chainLimits}
	b := &backend{store: s, projects: quota.Projects{Store: s}, locked: locked, served: served}
	if !filepath.IsAbs(place.Dir) {
		return nil, fail("opening", "", store.Refuse(errs.ErrNotSupported, place.Dir, "the directory for layers is not an absolute path"))
	}
	if place.Held {
		return b, nil
	}
	if err := b.checkLower(place.Tree.Path); err != nil {
		return nil, fail("opening", "", err)
	}
	if err := checkUpper(b.store.Dir); err != nil {
		return nil, fail("opening", "", err)
	}
	return b, nil
}

// privilege reports how this process may use overlayfs. userXattr is false only for root of the initial user
// namespace, which may write trusted.* attributes; overlays of others use user.* ones. locked reports that
// the mounts of overlays will be made in a user namespace that does not exist yet, in which all present
// mounts are locked.
func privilege() (userXattr, locked bool) {
	const first = "user:[4026531837]" // PROC_USER_INIT_INO of linux/proc_ns.h
	ns, err := os.Readlink("/proc/self/ns/user")
	outside := err != nil || ns == first
	root := os.Geteuid() == 0
	return !root || !outside, !root && outside
}

// A backend stores snapshots and forks as overlayfs layers in its directory. It has no other state, so that
// any number of processes may use the same one.
type backend struct {
	store     *store.Store
	projects  quota.Projects
	locked    bool // see privilege
	served    LowerServer
	unchanged unchangedForks // a cache
}

func (b *backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Unit: snapshot.ByFile, Durable: true, DirRename: !b.store.UserXattr, PartsLinks: true,
		Served: b.served != nil, Hidden: b.store.Dir,
	}
}

// fail wraps err in an [*errs.Error] with the operation op and the id of the snapshot or fork. From an
// *fs.PathError it takes the path. A nil err stays nil.
func fail(op, id string, err error) error {
	if err == nil || errs.HasOp(err) { // an error of the quota storage has an Op
		return err
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: errs.KindOfFile(err), Err: err}
	var at *fs.PathError
	if errors.As(err, &at) {
		e.Path, e.Err = at.Path, at.Err
	}
	var r *errs.Error
	if errors.As(err, &r) {
		e.Hints = r.Hints
	}
	if errors.Is(e.Kind, errs.ErrNoSpace) {
		e.Hints = []string{"snapfs gc"}
	}
	return e
}
