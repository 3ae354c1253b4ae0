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

// destroy destroys what is dead and has its mark, and answers with what something
// still needs: a snapshot that is kept, or a mount. What is not there, or has another
// mark, is passed over. A snapshot that has clones goes with the last of them. Cost:
// for each pool a process and a transaction group.
func destroy(ctx context.Context, list []dead) (busy map[string]bool, err error) {
	busy = map[string]bool{}
	pools := map[string][]string{}
	for _, d := range list {
		pool := poolOf(d.mark.dataset)
		pools[pool] = append(pools[pool], d.mark.dataset, d.mark.unique)
	}
	for pool, args := range pools {
		out, err := zfsWith(ctx, destroyProgram, append([]string{"program", "-j", pool, "-"}, args...)...)
		if err != nil {
			return nil, err
		}
		var said struct {
			Return map[string]int `json:"return"`
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			return nil, corrupt("what zfs program says cannot be read: " + err.Error())
		}
		for name, errno := range said.Return {
			switch errno := unix.Errno(errno); errno {
			case unix.EBUSY, unix.EEXIST: // EEXIST: it has children
				busy[name] = true
			case unix.ENOENT:
			default:
				return nil, &problem{kind: kindOf(errno), path: name, why: "zfs cannot destroy it: " + errno.Error()}
			}
		}
	}
	return busy, nil
}
