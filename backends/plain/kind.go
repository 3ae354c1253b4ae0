package plain

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// kindHere is the kind of what snapshot.KindOf has no kind for: a reason of
// our own, or an error number that means something in a copy. What nobody
// foresaw (an input/output error) is corrupt: it is not to be trusted.
func kindHere(err error) error {
	var r *reason
	if errors.As(err, &r) {
		return r.kind
	}
	for _, k := range []struct {
		errno unix.Errno
		kind  error
	}{
		{unix.ENOTEMPTY, snapshot.ErrExists},
		{unix.EFBIG, snapshot.ErrNoSpace},
		{unix.ENOTDIR, snapshot.ErrNotSupported},
		{unix.ELOOP, snapshot.ErrNotSupported},
		{unix.EMLINK, snapshot.ErrNotSupported},
		{unix.EINVAL, snapshot.ErrNotSupported},
		{unix.ENAMETOOLONG, snapshot.ErrNotSupported},
		{unix.EMFILE, snapshot.ErrBusy},
		{unix.ENFILE, snapshot.ErrBusy},
		{unix.ENOMEM, snapshot.ErrBusy},
	} {
		if errors.Is(err, k.errno) {
			return k.kind
		}
	}
	return snapshot.ErrCorrupt
}
