package admission

import (
	"fmt"
	"os"
	"runtime"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/units"
)

// A Host holds the total and free resources of a machine, as measured to decide whether a further sandbox
// fits. Sizes are in bytes.
type Host struct {
	// Memory is the total, and MemoryFree the amount available now.
	Memory, MemoryFree int64
	Processors         float64
	// Disk is the size of the filesystem with the state directory.
	Disk, DiskFree int64
	// PressureCPU and PressureMemory are the share of the last ten seconds in which some process waited,
	// PressureDisk the share in which all did: in percent, 0 if the kernel does not report it.
	PressureCPU, PressureMemory, PressureDisk float64
}

// Free bytes of memory and disk below which no sandbox is started, not even one without options.
const (
	leastMemory = 32 << 20
	leastDisk   = 64 << 10
)

// Pressures of the host, in percent of time that processes wait for a resource, from which on snapfs runs
// only one sandbox at a time.
const (
	muchCPU    = 80
	muchMemory = 10
	muchDisk   = 50
)

// reserve returns how much of a host's memory or disk snapfs never assigns to sandboxes: a twentieth of all,
// at most 1 GiB. all and the result are in bytes.
func reserve(all int64) int64 { return min(all/20, 1<<30) }

// estimate returns the resources that a sandbox with the limits a counts for: those limits, and an assumed
// amount where there is none.
func (h Host) estimate(a Request) Request {
	if a.Memory == 0 {
		a.Memory = min(assumedMemory, h.Memory/8)
	}
	if a.Disk == 0 {
		a.Disk = min(assumedDisk, h.Disk/16)
	}
	if a.Processors == 0 {
		a.Processors = assumedProcessors
	}
	a.Processors = min(a.Processors, h.Processors) // a sandbox gets no more
	return a
}

// limited returns the limits a of a sandbox, with 0 (no limit) for each that exceeds the resources of the
// host, because such a limit has no effect.
func (h Host) limited(a Request) Request {
	if a.Memory > h.Memory {
		a.Memory = 0
	}
	if a.Disk > h.Disk {
		a.Disk = 0
	}
	return a
}

// A Refusal says why the host has no capacity for a sandbox at present, or never has.
type Refusal struct {
	Why string
	// Never is set if the host would not admit the sandbox even alone.
	Never bool
}

// decide returns nil if the host has the capacity for a sandbox with the limits a besides those with the
// limits given, and otherwise the reason. It counts the whole of each limit, although a part may be in use
// already, so it errs towards waiting. Without other sandboxes it ignores processors and pressure, so that
// one can always run.
func (h Host) decide(given []Request, a Request) *Refusal {
	a = h.estimate(a)
	var sum Request
	for _, g := range given {
		g = h.estimate(h.limited(g))
		sum.Memory, sum.Disk, sum.Processors = sum.Memory+g.Memory, sum.Disk+g.Disk, sum.Processors+g.Processors
	}
	for _, d := range []struct {
		what                   string
		asked, sum, free, most int64
	}{
		{"memory", a.Memory, sum.Memory, h.MemoryFree - reserve(h.Memory), h.Memory - reserve(h.Memory)},
		{"disk", a.Disk, sum.Disk, h.DiskFree - reserve(h.Disk), h.Disk - reserve(h.Disk)},
	} {
		if d.asked > d.most {
			return &Refusal{Never: true, Why: fmt.Sprintf("it may use %s of %s, and this host has %s for sandboxes",
				units.SizeText(d.asked), d.what, units.SizeText(max(d.most, 0)))}
		}
		if d.sum+d.asked > d.free {
			return &Refusal{Why: fmt.Sprintf("it may use %s of %s; %s can be had, and %s of it are promised to %s",
				units.SizeText(d.asked), d.what, units.SizeText(max(d.free, 0)), units.SizeText(d.sum), sandboxes(len(given)))}
		}
	}
	if len(given) == 0 {
		return nil
	}
	if sum.Processors+a.Processors > h.Processors+1e-6 {
		return &Refusal{Why: fmt.Sprintf("%s of %s processors are promised to %s, and it may use %s",
			units.FormatCPUs(sum.Processors), units.FormatCPUs(h.Processors), sandboxes(len(given)), units.FormatCPUs(a.Processors))}
	}
	for _, p := range []struct {
		what      string
		is, bound float64
	}{{"processors", h.PressureCPU, muchCPU}, {"memory", h.PressureMemory, muchMemory}, {"disks", h.PressureDisk, muchDisk}} {
		if p.is >= p.bound {
			return &Refusal{Why: fmt.Sprintf("processes waited for %s in %.0f %% of the last ten seconds, and something runs already", p.what, p.is)}
		}
	}
	return nil
}

func sandboxes(n int) string {
	if n == 1 {
		return "1 sandbox"
	}
	return fmt.Sprintf("%d sandboxes", n)
}

// enough is an amount of unused memory in bytes above which free memory is not measured exactly, to save time
// at each start.
const enough = 1 << 30

// measureFree measures free memory, and free disk space in the directory state, for the fast decision about a
// sandbox without options. Cost: two system calls, and a file read if little memory is unused.
func measureFree(state string) (h Host, err error) {
	if h.MemoryFree, err = hostinfo.UnusedMemory(); err == nil && h.MemoryFree < enough {
		h.Memory, h.MemoryFree, err = hostinfo.Memory()
	}
	if err != nil {
		return h, err
	}
	return h, h.disk(state)
}

// disk sets the total and free disk space of h to those of the filesystem with the state directory.
func (h *Host) disk(state string) error {
	fs, err := mount.FilesystemOf(state)
	if err != nil {
		return err
	}
	h.Disk, h.DiskFree = fs.Size, fs.Avail
	if os.Geteuid() == 0 {
		h.DiskFree = fs.Free // root may use the reserved blocks
	}
	return nil
}

// measureHost measures all resources of the host, to decide whether a further sandbox fits. The disk is that
// with the state directory state.
func measureHost(state string) (h Host, err error) {
	if h.Memory, h.MemoryFree, err = hostinfo.Memory(); err != nil {
		return h, err
	}
	h.Processors = float64(runtime.NumCPU())
	h.PressureCPU, _, _ = hostinfo.Pressure("cpu")
	h.PressureMemory, _, _ = hostinfo.Pressure("memory")
	_, h.PressureDisk, _ = hostinfo.Pressure("io")
	return h, h.disk(state)
}
