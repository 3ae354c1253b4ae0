//go:build linux

package isolate

import (
	"encoding/binary"
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// image is a program of system calls, with all data that they point to, in memory that the supervisor shares
// with the process that executes it.
//
// That process is a copy of a Go program in which no Go code may run: other threads held locks of the scheduler
// and the allocator when it was copied, and are not there to release them. Instead the loop in run_*.s reads
// steps from the image and makes system calls, in registers alone. The loop uses no stack, so no stack can
// grow; it calls no function, so it has no race detector, pointer check or write barrier; CLONE_CLEAR_SIGHAND
// removes signal handlers before its first instruction. Because it uses no stack, it can even fork with vfork
// and continue in both processes.
//
// The process stores results and the cause of a failure in the image, where the supervisor reads them; the
// supervisor writes new steps where the process looks for them.
//
// An image only grows: data and steps are appended.
type image struct {
	mem   []byte
	used  int
	end   int // of the usable memory
	last  int // offset of the step that precedes the next one, or 0
	onErr int // offset of the step to continue with after an error
	stage string
	steps []stageOf
	err   error
}

// stageOf names the purpose of a step, for errors.
type stageOf struct {
	at          int
	stage, path string
}

// Offsets, in bytes, of the fields of a step, as run_*.s reads it.
const (
	stepCall   = 0  // the system call's number, or look
	stepArgs   = 8  // the six arguments
	stepNext   = 56 // the step after a positive result
	stepZero   = 64 // the step after a zero result
	stepFail   = 72 // the step after an error that stepQuiet does not list
	stepResult = 80 // address of an int32 for the result or -errno; or 0
	stepCells  = 88 // bit i: argument i is the address of an int32 to load
	stepQuiet  = 92 // two error numbers that lead to stepNext
	stepSize   = 96

	quietAll = 0xffff // as the first of stepQuiet: matches every error
	expected = 0xfffe // as the second of stepQuiet: errors are not recorded in the head

	// look makes no system call: its result is its first argument.
	look = ^uint64(0)

	// Offsets in the head of an image, which the executing process fills.
	headFailed = 0 // address of the step that failed
	headErrno  = 8 // int32: its errno
	headSize   = 64
)

// cell is the offset of an int32 in an image, such as the result of a step.
type cell int

// imageSize is twice the limit of a command's arguments and environment, which is about the kernel's own limit.
// Unused pages take no memory.
const imageSize = 8 << 20

// newImage maps an empty image; free unmaps it. Cost: 10 µs.
func newImage() (*image, error) {
	mem, err := unix.Mmap(-1, 0, imageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	return &image{mem: mem, used: headSize, end: imageSize, steps: make([]stageOf, 0, 512)}, nil
}

func (im *image) free() {
	if im.mem != nil {
		unix.Munmap(im.mem) //nolint:errcheck // the kernel gave it
		im.mem = nil
	}
}

// region is a part of an image, between two offsets.
type region struct{ from, to int }

// regions divides the rest of an image into two regions for requests, to be used in turn: pid 1 reports a
// request before it has executed the last steps of it, and the next request must not overwrite these. Pid 1
// begins the next request after them.
func (im *image) regions() [2]region {
	middle := (im.used + (len(im.mem)-im.used)/2) &^ 7
	return [2]region{{im.used, middle}, {middle, len(im.mem)}}
}

// rewind continues in a region. It discards the steps and errors there.
func (im *image) rewind(r region) {
	at := r.from
	im.used, im.end, im.last, im.err = at, r.to, 0, nil
	im.put64(headFailed, 0)
	for i, s := range im.steps {
		if s.at >= at {
			im.steps = im.steps[:i]
			break
		}
	}
}

// addr returns the address of offset off, which is the same in every process that has the image. Go's collector
// neither moves nor frees this memory.
func (im *image) addr(off int) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(im.mem)))) + uint64(off)
}

var errImageFull = errors.New("arguments and environment are too long")

// take reserves n zero bytes, aligned to 8, and returns their offset.
func (im *image) take(n int) int {
	at := im.used
	if n > im.end-at-8 {
		im.err = errImageFull
		return headSize
	}
	im.used = (at + n + 7) &^ 7
	clear(im.mem[at:im.used])
	return at
}

// put64 and put32 store a value at an offset.
func (im *image) put64(off int, v uint64) { binary.NativeEndian.PutUint64(im.mem[off:], v) }
func (im *image) put32(off int, v uint32) { binary.NativeEndian.PutUint32(im.mem[off:], v) }

// get reads a cell.
func (im *image) get(c cell) int { return int(int32(binary.NativeEndian.Uint32(im.mem[c:]))) }

// arg is an argument of a system call: a number, or a cell to load.
type arg struct {
	v    uint64
	cell bool
}

// num is a constant argument; negative numbers are for AT_FDCWD and the like.
func num[T ~int | ~int32 | ~uint32 | ~uint64 | ~uintptr](v T) arg { return arg{v: uint64(v)} }

// of is the content of a cell at the time of the call.
func (im *image) of(c cell) arg { return arg{v: im.addr(int(c)), cell: true} }

// at is the address of a cell.
func (im *image) at(c cell) arg { return arg{v: im.addr(int(c))} }

// newCell reserves a cell with the initial value v.
func (im *image) newCell(v int32) cell {
	c := im.take(4)
	im.put32(c, uint32(v))
	return cell(c)
}

// bytes appends data to the image and returns its address.
func (im *image) bytes(data ...byte) arg {
	at := im.take(len(data))
	copy(im.mem[at:], data)
	return num(im.addr(at))
}

// str appends a NUL-terminated string to the image.
func (im *image) str(s string) arg {
	at := im.take(len(s) + 1)
	copy(im.mem[at:], s)
	return num(im.addr(at))
}

// words appends 64-bit numbers to the image, for structures.
func (im *image) words(vs ...uint64) arg {
	at := im.take(8 * len(vs))
	if im.err == nil {
		for i, v := range vs {
			im.put64(at+8*i, v)
		}
	}
	return num(im.addr(at))
}

// strs appends a nil-terminated array of strings to the image.
func (im *image) strs(list []string) arg {
	vs := make([]uint64, len(list)+1)
	for i, s := range list {
		vs[i] = im.str(s).v
	}
	return im.words(vs...)
}

// step is one system call in an image.
type step struct {
	im *image
	at int
}

// do appends a system call, to be executed after the last one.
func (im *image) do(call uint64, args ...arg) step {
	at := im.take(stepSize)
	if im.err != nil {
		return step{im, at}
	}
	im.put64(at+stepCall, call)
	var cells uint32
	for i, a := range args {
		im.put64(at+stepArgs+8*i, a.v)
		if a.cell {
			cells |= 1 << i
		}
	}
	im.put32(at+stepCells, cells)
	if im.onErr != 0 {
		im.put64(at+stepFail, im.addr(im.onErr))
	}
	im.follow(at)
	im.last = at
	im.steps = append(im.steps, stageOf{at: at, stage: im.stage})
	return step{im, at}
}

// follow makes the last step continue at offset at, unless its next step is set.
func (im *image) follow(at int) {
	if im.last == 0 {
		return
	}
	for _, field := range []int{stepNext, stepZero} {
		if binary.NativeEndian.Uint64(im.mem[im.last+field:]) == 0 {
			im.put64(im.last+field, im.addr(at))
		}
	}
}

// path sets the file that errors of the step name.
func (s step) path(p string) step {
	s.im.steps[len(s.im.steps)-1].path = p
	return s
}

// into stores the result in a new cell.
func (s step) into() (step, cell) {
	c := s.im.newCell(-1)
	return s.to(c), c
}

// to stores the result in c.
func (s step) to(c cell) step {
	s.im.put64(s.at+stepResult, s.im.addr(int(c)))
	return s
}

// result stores the result in a new cell and returns only the cell.
func (s step) result() cell {
	_, c := s.into()
	return c
}

// quiet lists at most two errors that count as success.
func (s step) quiet(errnos ...syscall.Errno) step {
	for i, e := range errnos {
		binary.NativeEndian.PutUint16(s.im.mem[s.at+stepQuiet+2*i:], uint16(e))
	}
	return s
}

// next, zero, fail and expect set the step that follows each outcome. After fail, the error is recorded in the
// head; after expect, it is not.
func (s step) next(to step) step { s.im.put64(s.at+stepNext, s.im.addr(to.at)); return s }
func (s step) zero(to step) step { s.im.put64(s.at+stepZero, s.im.addr(to.at)); return s }
func (s step) fail(to step) step { s.im.put64(s.at+stepFail, s.im.addr(to.at)); return s }

// anyhow makes every error count as success; the result still holds it.
func (s step) anyhow() step { return s.quiet(quietAll) }

func (s step) expect(to step) step {
	binary.NativeEndian.PutUint16(s.im.mem[s.at+stepQuiet+2:], expected)
	return s.fail(to)
}

// jump appends a step without effect, whose next step is set later.
func (im *image) jump() step { return im.do(look, num(1)) }

// failure returns the step that failed and its error, once the process has ended.
func (im *image) failure() (where stageOf, errno syscall.Errno) {
	at := binary.NativeEndian.Uint64(im.mem[headFailed:])
	if at == 0 {
		return stageOf{}, 0
	}
	errno = syscall.Errno(binary.NativeEndian.Uint32(im.mem[headErrno:]))
	for _, s := range im.steps {
		if im.addr(s.at) == at {
			return s, errno
		}
	}
	return stageOf{stage: "starting"}, errno
}
