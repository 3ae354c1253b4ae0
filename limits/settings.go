//go:build linux

package limits

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
)

// A setting is a file of a control group and the value to write to it, which together enforce one limit.
// [Group.settings] makes the list for all limits, and [apply] writes them.
type setting struct {
	part     Part
	m        *member
	file     string
	value    string
	optional bool // not every kernel has the file
}

// period is the interval, in microseconds, over which the kernel averages a processor limit: a quota of CPU
// time per period. It is the kernel's default, 100 ms.
const period = 100_000

// settings returns the control group file and value for each limit that control groups enforce, in the same
// order for any l. A limit that is not set gets the value for no limit.
func (g *Group) settings(l Limits) []setting {
	var list []setting
	if m := g.find("cpu"); m != nil {
		list = append(list, cpuSetting(m, l.CPUs))
	}
	if m := g.find("memory"); m != nil {
		list = append(list, memorySettings(m, l.Memory)...)
	}
	if m := g.find("pids"); m != nil {
		l.PIDs = capped(l.PIDs, mostPIDs)
		list = append(list, setting{part: PartPIDs, m: m, file: "pids.max", value: or(l.PIDs, "max")})
	}
	if m := g.find("blkio", "io"); m != nil {
		for _, dev := range g.disks {
			device := fmt.Sprintf("%d:%d ", unix.Major(dev), unix.Minor(dev))
			for _, r := range l.rates() {
				if r.part == PartReadOps || r.part == PartWriteOps {
					r.value = capped(r.value, math.MaxUint32)
				}
				k := setting{part: r.part, m: m, file: "io.max", value: device + r.v2 + "=" + or(r.value, "max")}
				if m.version == 1 {
					k.file, k.value = r.v1, device+strconv.FormatInt(r.value, 10)
				}
				list = append(list, k)
			}
		}
	}
	return list
}

func cpuSetting(m *member, cpus float64) setting {
	quota := int64(cpus*period + 0.5)
	if m.version == 1 {
		return setting{part: PartCPUs, m: m, file: "cpu.cfs_quota_us", value: or(quota, "-1")}
	}
	return setting{part: PartCPUs, m: m, file: "cpu.max", value: or(quota, "max") + " " + strconv.Itoa(period)}
}

// memorySettings returns the settings that limit the memory of the control group m to that many bytes. In
// version 1 the limit with swap is a second one, never below the first, and the buffers of network sockets have one
// of their own. In version 2 swap is disabled, and the kernel kills all processes of the group together.
func memorySettings(m *member, bytes int64) []setting {
	if m.version == 1 {
		return []setting{
			{part: PartMemory, m: m, file: "memory.limit_in_bytes", value: or(bytes, "-1")},
			{part: PartMemory, m: m, file: "memory.memsw.limit_in_bytes", value: or(bytes, "-1"), optional: true},
			{part: PartMemory, m: m, file: "memory.kmem.tcp.limit_in_bytes", value: or(bytes, "-1"), optional: true},
		}
	}
	swap, group := "max", "0"
	if bytes != 0 {
		swap, group = "0", "1"
	}
	return []setting{
		{part: PartMemory, m: m, file: "memory.oom.group", value: group, optional: true},
		{part: PartMemory, m: m, file: "memory.swap.max", value: swap, optional: true},
		{part: PartMemory, m: m, file: "memory.max", value: or(bytes, "max")},
	}
}

// mostPIDs is the largest number of processes and threads that the kernel accepts in pids.max (PID_MAX_LIMIT,
// include/linux/threads.h). A higher limit is written as no limit.
const mostPIDs = 4 << 20

// capped returns n, a limit to be written to a control group's file, or 0 for no limit if n exceeds the
// kernel's maximum most. The kernel would refuse such a value, or truncate it to 32 bits.
func capped(n, most int64) int64 {
	if n > most {
		return 0
	}
	return n
}

func or(n int64, none string) string {
	if n == 0 {
		return none
	}
	return strconv.FormatInt(n, 10)
}

// apply writes the list to of settings into the control groups' files, so that new limits are in force. It
// omits those that are the same in the list from, the present settings. After an error, which names the
// limit, the previous values are in force.
func apply(ctx context.Context, from, to []setting) error {
	var done []setting
	queue := make([]int, 0, len(to))
	for i := range to {
		if to[i].value != from[i].value {
			queue = append(queue, i)
		}
	}
	again := map[int]bool{}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		k := to[i]
		err := step(ctx, "limit "+string(k.part))
		if err == nil {
			err = k.m.write(k.file, k.value)
		}
		switch {
		case err == nil:
			done = append(done, from[i])
		case k.optional && errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.EINVAL) && !again[i]:
			again[i] = true // the limit with swap must be increased before the one without
			queue = append(queue, i)
		default:
			return errors.Join(refused(k, err), undo(done))
		}
	}
	return nil
}

func undo(done []setting) error {
	for _, k := range slices.Backward(done) {
		if err := k.m.write(k.file, k.value); err != nil {
			return failed("undoing the limit of "+string(k.part), k.m.path+"/"+k.file, err)
		}
	}
	return nil
}

func refused(k setting, err error) error {
	e := asError("limiting "+string(k.part), k.m.path+"/"+k.file, err)
	if k.part == PartMemory && errors.Is(e, errs.ErrBusy) {
		e.Err = errors.New("more than " + k.value + " bytes are in use and cannot be reclaimed")
	}
	return e
}

// reclaim makes the control group m (version 2) give back memory until it uses at most bytes, before a lower
// limit is set: the kernel would kill processes instead of refusing the limit. ErrBusy: more is in use.
func reclaim(m *member, bytes int64) error {
	if m == nil || m.version == 1 || bytes == 0 {
		return nil
	}
	used, ok := m.number("memory.current")
	if !ok || used <= bytes {
		return nil
	}
	// memory.reclaim fails with EAGAIN if less could be reclaimed, and is missing before Linux 5.19.
	tried := m.write("memory.reclaim", strconv.FormatInt(used-bytes, 10))
	if used, ok = m.number("memory.current"); ok && used > bytes {
		return errors.Join(&errs.Error{
			Op: "limiting " + string(PartMemory), Kind: errs.ErrBusy,
			Err: errors.New(units.SizeText(used) + " are in use and cannot be reclaimed"),
		}, tried)
	}
	return nil
}
