//go:build linux

package zfs

import (
	"context"
	_ "embed"
	"encoding/json"

	"golang.org/x/sys/unix"
)

// destroyProgram runs in the kernel (zfs-program(8)), in one transaction: nobody
// comes between the look at a mark and what it allows.
//
//go:embed destroy.lua
var destroyProgram string

// destroyed is what the program answers with, by name.
type destroyed struct {
	Failed  map[string]int  // the number of an error
	Missing map[string]bool // there is none
	Moved   map[string]bool // nor is there the dataset that was captured
}

// destroy destroys what is dead in a pool and has its mark. What is not there, or has another
// mark, is passed over. A snapshot that has clones goes with the last of them. Cost:
// a process and a transaction group.
func destroy(ctx context.Context, pool string, list []dead) (said destroyed, err error) {
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
		return said, corrupt("what zfs program says cannot be read: " + err.Error())
	}
	return answer.Return, nil
}

// stays says whether an entry has to wait for a later sweep: something needs what it names, a
// snapshot that is kept, a hold or a mount, or that may come about yet. And why, where that is not as it should be.
func (said destroyed) stays(d dead) (stays bool, why error) {
	name := d.mark.dataset
	switch errno := unix.Errno(said.Failed[name]); errno {
	case 0, unix.ENOENT:
	case unix.EBUSY, unix.EEXIST: // EEXIST: it has children
		return true, nil
	default:
		return true, &problem{kind: kindOf(errno), path: name, why: "zfs cannot destroy it: " + errno.Error()}
	}
	if said.Moved[name] {
		return true, moved(d.mark)
	}
	return said.Missing[name] && d.young && !d.undone, nil
}
