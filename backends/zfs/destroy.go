//go:build linux

package zfs

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// destroyProgram is a ZFS channel program (zfs-program(8)), which the kernel runs in one transaction: it
// destroys datasets after it has checked snapfs's mark, a property of each. No other change happens between
// check and destruction.
//
//go:embed destroy.lua
var destroyProgram string

// destroyed is the reply of [destroyProgram]: which datasets it could not destroy, by name. One that it
// destroyed is in no map.
type destroyed struct {
	Failed  map[string]int  // the errno of a failure
	Missing map[string]bool // the dataset does not exist
	Moved   map[string]bool // neither does the dataset that was captured
}

// destroy destroys the ZFS datasets in pool of the removed snapshots and forks in list. A dataset that does
// not exist, or whose property with snapfs's mark has another value than the list says, is skipped. A
// snapshot with clones is destroyed with the last of them. Cost: a process and a transaction group.
func destroy(ctx context.Context, pool string, list []trashEntry) (said destroyed, err error) {
	args := []string{"program", "-j", pool, "-"}
	for _, d := range list {
		args = append(args, d.mark.dataset, d.mark.unique, d.mark.source)
	}
	out, err := zfsWith(ctx, destroyProgram, args...)
	if err != nil {
		return said, err
	}
	var answer struct{ Return destroyed }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return said, corrupt("the output of zfs program is not readable: " + err.Error())
	}
	return answer.Return, nil
}

// stays reports whether the removed snapshot or fork d must wait in the trash for a later sweep: because a
// snapshot, a hold or a mount needs its dataset, or because the dataset may still come into existence. why is
// an error that the user should know.
func (said destroyed) stays(d trashEntry) (stays bool, why error) {
	name := d.mark.dataset
	switch errno := unix.Errno(said.Failed[name]); errno {
	case 0, unix.ENOENT:
	case unix.EBUSY, unix.EEXIST: // EEXIST: it has children
		return true, nil
	default:
		return true, &errs.Error{Kind: kindOf(errno), Path: name, Err: fmt.Errorf("zfs cannot destroy it: %w", errno)}
	}
	if said.Moved[name] {
		return true, movedError(d.mark)
	}
	return said.Missing[name] && d.young && !d.undone, nil
}
