package catalog

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A new snapshot has a number that the sandbox's record must cover on stable storage before a backend uses it, so that
// a removal finds the snapshot and no other gets the same number, whatever is interrupted. To save that write, each
// saved snapshot reserves numbers for the next ones in the same write of the record. The file reserveFile beside the
// record says which of them are unused. It is never synced, and so counts only in the boot in which it was written:
// after a power loss its numbers stay unused.
const reserveFile = "numbers"

// A span is a range of numbers for snapshots and forks: from the number from up to to, exclusive.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// reserveFormat is the content of reserveFile: the boot, the sandbox's id, and the unused numbers. The numbers have a
// fixed width, so that each write replaces the whole content in place.
const reserveFormat = "%s %s %010d %010d\n"

// TakeReserved makes the next n ids that [Record.NewSnapshot] and [Record.NewFork] return come from reserved numbers,
// which the saved record covers already, so that [Locked.SaveNumbers] need not write it. If fewer are reserved, it
// takes none, and the ids get new numbers. No number is taken twice, whatever is interrupted.
func (h *Locked) TakeReserved(n int) {
	h.reserve = span{}
	boot, err := proc.BootID()
	if err != nil {
		return
	}
	data, err := vfs.ReadFile(filepath.Join(h.c.Path(h.Name), reserveFile))
	if err != nil {
		return
	}
	var s span
	var of, id string
	if _, err := fmt.Sscanf(string(data), reserveFormat, &of, &id, &s.from, &s.to); err != nil || of != boot || id != h.ID {
		return
	}
	if s.from < 1 || s.to > h.Next+1 || s.from+n > s.to || h.uses(s.from, s.to) {
		return
	}
	if h.writeReserve(boot, span{s.from + n, s.to}) != nil {
		return
	}
	h.free, h.covered, h.reserve = span{s.from, s.from + n}, h.Next, span{s.from + n, s.to}
}

// uses reports whether a tree or the newest named snapshot in the sandbox's record has one of the reserved
// numbers from up to to, exclusive. If so, the file with the reservation is from before the record was saved:
// a disk has lost the file's last write, which is never synced, without a reboot. [Locked.TakeReserved] then
// takes none of them, so that no number is used twice.
func (h *Locked) uses(from, to int) bool {
	var ids []string
	for _, t := range h.Trees {
		ids = append(ids, string(t.Fork), string(t.Base))
	}
	if n := len(h.Snapshots); n > 0 {
		for _, id := range h.Snapshots[n-1].IDs {
			ids = append(ids, string(id))
		}
	}
	return slices.ContainsFunc(ids, func(id string) bool { // ID-sNUMBER or ID-fNUMBER
		n, err := strconv.Atoi(id[strings.LastIndexAny(id, "sf")+1:])
		return err == nil && n >= from && n < to
	})
}

// SaveNumbers makes sure that a removal of the sandbox finds the snapshots and forks of all new ids, also after a
// power loss: it does the same as [Locked.Save] unless all of them have reserved numbers, and the caller has changed
// nothing else in the record since [Locked.TakeReserved].
func (h *Locked) SaveNumbers() error {
	if h.covered > 0 && h.covered == h.Next {
		return nil
	}
	return h.Save()
}

// SaveReserving saves the record as [Locked.Save] does, and reserves numbers with it so that a later
// [Locked.TakeReserved] has at least n. Numbers that [Locked.TakeReserved] has left stay reserved, and count. A failed
// reservation is no error.
func (h *Locked) SaveReserving(n int) error {
	boot, err := proc.BootID()
	if err != nil || h.Ephemeral || h.reserve.len() >= n {
		return h.Save()
	}
	s := span{h.Next + 1, h.Next + 1 + n}
	if h.reserve.to == h.Next+1 {
		s = span{h.reserve.from, h.reserve.from + n}
	}
	h.Next = s.to - 1
	if err := h.Save(); err != nil {
		return err
	}
	if h.writeReserve(boot, s) == nil { // otherwise the numbers stay unused
		h.reserve = s
	}
	return nil
}

// orderedSaves is how many calls of [Locked.SaveReservingOrdered] share one wait for the disk.
const orderedSaves = 64

// SaveReservingOrdered saves the record after a snapshot with n ids as [Locked.SaveReserving] does, but a power loss
// within the next seconds may leave the record from before the snapshot, if the snapshot's ids have reserved numbers and
// n more are left. The numbers of the lost snapshot are then not used again. Otherwise it is as durable as
// SaveReserving, and reserves numbers for the next calls.
func (h *Locked) SaveReservingOrdered(n int) error {
	if h.covered == 0 || h.covered != h.Next || h.reserve.len() < n {
		return h.SaveReserving(orderedSaves * n)
	}
	return h.SaveOrdered()
}

// writeReserve stores in the file of the sandbox's reserved numbers that those of s are unused, in the boot of the
// machine with the id boot.
func (h *Locked) writeReserve(boot string, s span) error {
	if err := h.c.plan.Point("note reserved numbers"); err != nil {
		return err
	}
	f, err := vfs.OpenAt(unix.AT_FDCWD, filepath.Join(h.c.Path(h.Name), reserveFile), unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, reserveFormat, boot, h.ID, s.from, s.to)
	return err
}
