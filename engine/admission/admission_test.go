package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
)

const gib = 1 << 30

// roomy has four processors.
var roomy = Host{Memory: 16 * gib, MemoryFree: 12 * gib, Processors: 4, Disk: 100 * gib, DiskFree: 50 * gib}

// controllerOf returns a controller for a new state directory, on a host as given.
func controllerOf(t *testing.T, h func() Host) *Controller {
	look := func() (Host, error) { return h(), nil }
	return &Controller{dir: filepath.Join(t.TempDir(), "admission"), glance: look, look: look}
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *Host)
		given  []Request
		ask    Request
		why    string // a part of the reason, "" for admitted
		never  bool
	}{
		"alone":                             {nil, nil, Request{}, "", false},
		"three others":                      {nil, make([]Request, 3), Request{}, "", false},
		"four others":                       {nil, make([]Request, 4), Request{}, "4 of 4 processors are promised to 4 sandboxes, and it may use 1", false},
		"parts of processors":               {nil, slices.Repeat([]Request{{Memory: 1, Processors: 0.1}}, 39), Request{Processors: 0.1}, "", false},
		"more processors than there are":    {nil, nil, Request{Processors: 64}, "", false},
		"others with more than there are":   {nil, []Request{{Processors: 64}}, Request{Processors: 0.1}, "4 of 4 processors are promised to 1 sandbox", false},
		"memory that is promised":           {nil, []Request{{Memory: 8 * gib}}, Request{Memory: 4 * gib}, "it may use 4 GiB of memory", false},
		"memory beside what is promised":    {nil, []Request{{Memory: 8 * gib}}, Request{Memory: 3 * gib}, "", false},
		"others whose limits are none":      {nil, []Request{{Memory: 500 << 40, Disk: 500 << 40}}, Request{Memory: 4 * gib}, "", false},
		"memory that others have":           {func(h *Host) { h.MemoryFree = 2 * gib }, nil, Request{Memory: 4 * gib}, "it may use 4 GiB of memory", false},
		"an assumption that does not fit":   {func(h *Host) { h.MemoryFree = gib }, nil, Request{}, "it may use 512 MiB of memory", false},
		"more memory than there is":         {nil, nil, Request{Memory: 16 * gib}, "it may use 16 GiB of memory, and this host has", true},
		"disk that is promised":             {nil, []Request{{Disk: 45 * gib}}, Request{Disk: 5 * gib}, "it may use 5 GiB of disk", false},
		"disk beside what is promised":      {nil, []Request{{Disk: 45 * gib}}, Request{Disk: 3 * gib}, "", false},
		"more disk than there is":           {nil, nil, Request{Disk: 100 * gib}, "it may use 100 GiB of disk, and this host has", true},
		"pressure of others, alone":         {func(h *Host) { h.PressureCPU, h.PressureMemory, h.PressureDisk = 99, 99, 99 }, nil, Request{}, "", false},
		"processors under pressure":         {func(h *Host) { h.PressureCPU = 90 }, make([]Request, 1), Request{}, "waited for processors in 90 %", false},
		"memory under pressure":             {func(h *Host) { h.PressureMemory = 20 }, make([]Request, 1), Request{}, "waited for memory in 20 %", false},
		"disks under pressure":              {func(h *Host) { h.PressureDisk = 60 }, make([]Request, 1), Request{}, "waited for disks in 60 %", false},
		"a small host, without limits":      {func(h *Host) { h.Memory, h.MemoryFree = 256<<20, 100<<20 }, nil, Request{}, "", false},
		"a small disk, without limits":      {func(h *Host) { h.Disk, h.DiskFree = 64<<20, 10<<20 }, nil, Request{}, "", false},
		"half a processor, by its group":    {func(h *Host) { h.Processors = 0.5 }, nil, Request{}, "", false},
		"half a processor, and another one": {func(h *Host) { h.Processors = 0.5 }, make([]Request, 1), Request{}, "0.5 of 0.5 processors", false},
	} {
		h := roomy
		if c.change != nil {
			c.change(&h)
		}
		answer := h.decide(c.given, c.ask)
		switch {
		case c.why == "" && answer != nil:
			t.Errorf("%s: %q", name, answer.Why)
		case c.why != "" && (answer == nil || !strings.Contains(answer.Why, c.why) || answer.Never != c.never):
			t.Errorf("%s: %+v, want %q, never: %v", name, answer, c.why, c.never)
		}
	}
}

// TestEnterWithoutOptionsFailsOnlyOnAFullHost, however many sandboxes run.
func TestEnterWithoutOptionsFailsOnlyOnAFullHost(t *testing.T) {
	h := roomy
	h.PressureCPU = 100
	b := controllerOf(t, func() Host { return h })
	var places []*Slot
	for range 3 * spares {
		p, err := b.Enter(t.Context(), Request{Processors: 4}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
	}
	h.MemoryFree = 10 << 20
	_, err := b.Enter(t.Context(), Request{}, Options{})
	if !errors.Is(err, errNoRoom) || !errors.Is(err, errs.ErrBusy) || err.Error() != "starting a sandbox: no room: only 10 MiB of memory are left" {
		t.Errorf("no memory: %v", err)
	}
	h.DiskFree = 4096
	for _, w := range []Options{{}, {IfRoom: true}, {Queue: time.Hour}} {
		if _, err = b.Enter(t.Context(), Request{}, w); !errors.Is(err, errs.ErrNoSpace) || errors.Is(err, errNoRoom) {
			t.Errorf("%+v on a full disk: %v", w, err)
		}
	}
	for _, p := range places {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	}
	if files, _ := os.ReadDir(b.dir); len(files) > spares {
		t.Errorf("%d files are left", len(files))
	}
	for path, mode := range map[string]os.FileMode{b.dir: 0o700 | os.ModeDir, b.place(os.Getpid() % spares): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// TestSlotsAreNeverExceeded: a hundred sandboxes on a host with three processors, some of which stop waiting.
func TestSlotsAreNeverExceeded(t *testing.T) {
	const places, n = 3, 100
	h := roomy
	h.Processors = places
	b := controllerOf(t, func() Host { return h })
	blocker, err := b.Enter(t.Context(), Request{Processors: places}, Options{IfRoom: true})
	if err != nil {
		t.Fatal(err)
	}
	var all, waiting sync.WaitGroup
	var in, most, served atomic.Int32
	waiting.Add(n)
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var once sync.Once
			p, err := b.Enter(ctx, Request{}, Options{Queue: time.Hour, Waiting: func(int, string) {
				once.Do(func() {
					if i%10 == 9 {
						cancel()
					}
					waiting.Done()
				})
			}})
			if i%10 == 9 {
				if !errors.Is(err, errs.ErrInterrupted) {
					t.Errorf("%d: %v", i, err)
				}
				return
			}
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			for now := in.Add(1); ; {
				was := most.Load()
				if now <= was || most.CompareAndSwap(was, now) {
					break
				}
			}
			served.Add(1)
			in.Add(-1)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	if _, err := b.Enter(t.Context(), Request{}, Options{IfRoom: true}); !errors.Is(err, errNoRoom) || !strings.Contains(err.Error(), "3 of 3 processors") {
		t.Error("one who does not wait:", err)
	}
	if err := blocker.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if m := most.Load(); m > places || m < 1 || served.Load() != n*9/10 {
		t.Errorf("%d were served, %d at once", served.Load(), m)
	}
	if list, err := b.numbers(); err != nil || len(list) > 0 {
		t.Error("tickets that are left:", list, err)
	}
}

// TestQueueIsFirstComeFirstServed, though later requests are smaller.
func TestQueueIsFirstComeFirstServed(t *testing.T) {
	h := roomy
	b := controllerOf(t, func() Host { return h })
	blocker, err := b.Enter(t.Context(), Request{Processors: 1}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 12
	served := make(chan int, n)
	var all sync.WaitGroup
	for i := range n {
		waits := make(chan int)
		var once sync.Once
		all.Go(func() {
			p, err := b.Enter(t.Context(), Request{Processors: 4}, Options{Queue: time.Hour, Waiting: func(before int, _ string) {
				once.Do(func() { waits <- before })
			}})
			if err != nil {
				t.Error(err)
				return
			}
			served <- i
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		if before := <-waits; before != i {
			t.Errorf("%d wait before number %d", before, i)
		}
	}
	// The host has the capacity for these, but others wait.
	small := Request{Processors: 0.1}
	if _, err := b.Enter(t.Context(), small, Options{IfRoom: true}); !errors.Is(err, errNoRoom) || !strings.Contains(err.Error(), "12 wait before it") {
		t.Error(err)
	}
	if _, err := b.Enter(t.Context(), small, Options{Queue: 20 * time.Millisecond}); !errors.Is(err, errNoRoom) ||
		err.Error() != "starting a sandbox: no room: there was none in 20ms: 12 before it wait too" {
		t.Error(err)
	}
	if _, err := b.Enter(t.Context(), Request{Memory: 64 * gib}, Options{Queue: time.Hour}); !errors.Is(err, errNoRoom) {
		t.Error("what never fits:", err)
	}
	if err := blocker.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	for i := range n {
		if got := <-served; got != i {
			t.Errorf("number %d is served as number %d", got, i)
		}
	}
}

// TestStaleTicketBlocksNobody, neither later tickets nor new sandboxes.
func TestStaleTicketBlocksNobody(t *testing.T) {
	b := controllerOf(t, func() Host { return roomy })
	leave := func() {
		for n := range uint64(3) {
			if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.WriteFile(b.ticket(n+1), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	p, err := b.Enter(t.Context(), Request{}, Options{IfRoom: true})
	if err != nil {
		t.Error(err)
	}
	leave()
	f, err := b.lock(b.ticket(4))
	if err != nil {
		t.Fatal(err)
	}
	mine := &ticket{number: 4, f: f}
	if before, err := b.before(mine); before != 0 || err != nil {
		t.Error(before, err)
	}
	mine.leave()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestSlotCanBeHandedOver: the process that has its file open has the slot, can change its request, and gives
// it back.
func TestSlotCanBeHandedOver(t *testing.T) {
	b := controllerOf(t, func() Host { return roomy })
	p, err := b.Enter(t.Context(), Request{Memory: 1}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(p.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	p.HandOver()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if list, err := b.given(); err != nil || !slices.Equal(list, []Request{{Memory: 1}}) {
		t.Error(list, err)
	}
	heir, err := Inherit(fd)
	if err != nil {
		t.Fatal(err)
	}
	want := Request{Memory: 2, Disk: 3, Processors: 1.5}
	if err := heir.Set(want); err != nil {
		t.Error(err)
	}
	if list, err := b.given(); err != nil || !slices.Equal(list, []Request{want}) {
		t.Error(list, err)
	}
	if err := heir.Close(); err != nil {
		t.Error(err)
	}
	if list, err := b.given(); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
}

// BenchmarkEnter measures the cost for every start of a sandbox.
func BenchmarkEnter(b *testing.B) {
	dir := b.TempDir()
	book := Open(filepath.Join(dir, "admission"), dir, func(h Host) (Host, error) { return h, nil })
	for b.Loop() {
		p, err := book.Enter(b.Context(), Request{}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// The content of a slot's file is that of package json, which other versions of snapfs read and write.
func TestASlotHasTheFormOfPackageJSON(t *testing.T) {
	for _, r := range []record{
		{Version: 1},
		{Version: 1, Place: 15, Request: Request{Memory: 1 << 40, Disk: 5 << 30, Processors: 0.01}},
		{Version: 1, Place: 1, Request: Request{Processors: 8192}},
		{Version: 1, Request: Request{Memory: 1<<63 - 1, Disk: 1<<63 - 1, Processors: 1.0 / 3}},
	} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%-*s\n", recordSize-1, text); string(r.content()) != want || len(want) != recordSize {
			t.Errorf("the content is %q, not %q", r.content(), want)
		}
	}
}
