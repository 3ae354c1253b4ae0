package admission

import (
	"fmt"
	"os"
	"runtime"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/units"
)

// A Host is what a machine has, and what of it is free. Sizes are in bytes.
type Host struct {
	// Memory is all there is, and MemoryFree what can be had now.
	Memory, MemoryFree int64
	Processors         float64
	// Disk is the size of the filesystem with the state directory.
	Disk, DiskFree int64
	// PressureCPU and PressureMemory are for how much of the last ten seconds
	// something waited, PressureDisk for how much of it everything did: in percent,
	// 0 where the kernel does not tell.
	PressureCPU, PressureMemory, PressureDisk float64
}

// Less than this is next to nothing: not even what asks for nothing is started.
const (
	leastMemory = 32 << 20
	leastDisk   = 64 << 10
)

// From these pressures on, in percent, sandboxes run one at a time.
const (
	muchCPU    = 80
	muchMemory = 10
	muchDisk   = 50
)

// reserve is what is never promised to sandboxes: a twentieth, and 1 GiB at most.
func reserve(all int64) int64 { return min(all/20, 1<<30) }

// of is what is counted for a sandbox that asks for this much.
func (h Host) of(a Ask) Ask {
	if a.Memory == 0 {
		a.Memory = min(assumedMemory, h.Memory/8)
	}
	if a.Disk == 0 {
		a.Disk = min(assumedDisk, h.Disk/16)
	}
	if a.Processors == 0 {
		a.Processors = assumedProcessors
	}
	a.Processors = min(a.Processors, h.Processors) // it gets no more
	return a
}

// limited is a without what is more than the host has: that limits nothing.
func (h Host) limited(a Ask) Ask {
	if a.Memory > h.Memory {
		a.Memory = 0
	}
	if a.Disk > h.Disk {
		a.Disk = 0
	}
	return a
}

// An Answer says why somebody is not admitted.
type Answer struct {
	Why string
	// Never: it would not be either if it were alone.
	Never bool
}

// Decide answers whether there is room for one who asks for this much beside those to
// whom places are given: nil, or why not. All of what was asked for is counted, though a
// part of it may be in use already: it errs towards waiting. Where nothing runs yet,
// neither processors nor pressure keep anybody out, so that there is always one who
// goes on.
func (h Host) Decide(given []Ask, a Ask) *Answer {
	a = h.of(a)
	var sum Ask
	for _, g := range given {
		g = h.of(h.limited(g))
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
			return &Answer{Never: true, Why: fmt.Sprintf("it may use %s of %s, and this host has %s for sandboxes",
				units.SizeText(d.asked), d.what, units.SizeText(max(d.most, 0)))}
		}
		if d.sum+d.asked > d.free {
			return &Answer{Why: fmt.Sprintf("it may use %s of %s; %s can be had, and %s of it are promised to %s",
				units.SizeText(d.asked), d.what, units.SizeText(max(d.free, 0)), units.SizeText(d.sum), sandboxes(len(given)))}
		}
	}
	if len(given) == 0 {
		return nil
	}
	if sum.Processors+a.Processors > h.Processors+1e-6 {
		return &Answer{Why: fmt.Sprintf("%s of %s processors are promised to %s, and it may use %s",
			units.FormatCPUs(sum.Processors), units.FormatCPUs(h.Processors), sandboxes(len(given)), units.FormatCPUs(a.Processors))}
	}
	for _, p := range []struct {
		what      string
		is, bound float64
	}{{"processors", h.PressureCPU, muchCPU}, {"memory", h.PressureMemory, muchMemory}, {"disks", h.PressureDisk, muchDisk}} {
		if p.is >= p.bound {
			return &Answer{Why: fmt.Sprintf("processes waited for %s in %.0f %% of the last ten seconds, and something runs already", p.what, p.is)}
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

// enough is so much unused memory that it need not be looked at more closely.
const enough = 1 << 30

// glance tells what memory and disk are free. Cost: two system calls, and a read where
// little memory is unused.
func glance(state string) (h Host, err error) {
	if h.MemoryFree, err = hostinfo.UnusedMemory(); err == nil && h.MemoryFree < enough {
		h.Memory, h.MemoryFree, err = hostinfo.Memory()
	}
	if err != nil {
		return h, err
	}
	return h, h.disk(state)
}

// disk looks at the filesystem with the state directory.
func (h *Host) disk(state string) error {
	fs, err := mount.FilesystemOf(state)
	if err != nil {
		return err
	}
	h.Disk, h.DiskFree = fs.Size, fs.Avail
	if os.Geteuid() == 0 {
		h.DiskFree = fs.Free // root may have what is kept from others
	}
	return nil
}

// look tells all of this host.
func look(state string) (h Host, err error) {
	if h.Memory, h.MemoryFree, err = hostinfo.Memory(); err != nil {
		return h, err
	}
	h.Processors = float64(runtime.NumCPU())
	h.PressureCPU, _, _ = hostinfo.Pressure("cpu")
	h.PressureMemory, _, _ = hostinfo.Pressure("memory")
	_, h.PressureDisk, _ = hostinfo.Pressure("io")
	return h, h.disk(state)
}
