//go:build linux

package isolate

import (
	"encoding/binary"
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An image is a program of system calls, with all the data it points to, in
// memory that the keeper shares with the process which works through it. That
// process is a copy of a Go program, in which nothing of Go may run: other
// threads held the scheduler's and the allocator's locks when it was copied and
// are not there to release them. So it runs none: the loop of run_*.s reads
// steps from the image and makes system calls, in registers alone. It uses no
// stack, so no stack can grow; it calls no function, so no race detector,
// pointer check or write barrier is in it; handlers of signals are gone from
// its first instruction on (CLONE_CLEAR_SIGHAND). Because it uses no stack it
// can even fork by vfork and go on in both processes.
//
// Sharing the memory makes the rest simple: the process leaves results and the
// reason of a failure where the keeper reads them, and what it is to run next
// is written where it will look for it.
//
// An image only ever grows: data and steps lie one after another as they come.
type image struct {
	mem   []byte
	used  int
	end   int // of what may be used
	last  int // offset of the step that the next one follows, or 0
	onErr int // offset of the step to go on with after an error
	stage string
	steps []stageOf
	err   error
}

// stageOf says what a step was for.
type stageOf struct {
	at          int
	stage, path string
}

// A step as run_*.s reads it: offsets into it, in bytes.
const (
	stepCall   = 0  // the system call's number, or look
	stepArgs   = 8  // its six arguments
	stepNext   = 56 // the step after a result above zero
	stepZero   = 64 // the step after zero
	stepFail   = 72 // the step after an error that is not quiet
	stepResult = 80 // where to put the result, or -errno: an int32; or 0
	stepCells  = 88 // bit i: argument i is not a value but the address of an int32
	stepQuiet  = 92 // two error numbers, after which stepNext follows as well
	stepSize   = 96

	quietAll = 0xffff // as the first of stepQuiet: any error
	expected = 0xfffe // as the second: an error is not kept in the head

	// look is no call: its result is its first argument.
	look = ^uint64(0)

	// The head of every image, filled by the process that runs it.
	headFailed = 0 // address of the step that had an error
	headErrno  = 8 // its int32
	headSize   = 64
)

// cell is the offset of an int32 in an image: a result to be used later.
type cell int

// imageSize is twice what bounds arguments and environment of a command; the
// kernel's own bound is about as large as that. Memory that is not used is not there.
const imageSize = 8 << 20

// newImage takes imageSize bytes from the kernel, until free. Cost: 10 µs.
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

// A room is a part of an image, from an offset up to another.
type room struct{ from, to int }

// rooms are two for requests, in what is left of an image. They are used in turn:
// pid 1 answers before it has done the last steps of a request, and those are not
// to be overwritten by the next one. It begins that one when they are done.
func (im *image) rooms() [2]room {
	middle := (im.used + (len(im.mem)-im.used)/2) &^ 7
	return [2]room{{im.used, middle}, {middle, len(im.mem)}}
}

// rewind goes on in a room. It forgets what was written there, and what went
// wrong.
func (im *image) rewind(r room) {
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

// addr is the address of offset off, the same in every process that has the
// image. The memory is the kernel's, not Go's: nothing moves or collects it.
func (im *image) addr(off int) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(im.mem)))) + uint64(off)
}

var errImageFull = errors.New("arguments and environment are too long")

// take reserves n bytes, aligned to 8 and zero.
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

// put64 and put32 store into the image at an offset.
func (im *image) put64(off int, v uint64) { binary.NativeEndian.PutUint64(im.mem[off:], v) }
func (im *image) put32(off int, v uint32) { binary.NativeEndian.PutUint32(im.mem[off:], v) }

// get reads a cell.
func (im *image) get(c cell) int { return int(int32(binary.NativeEndian.Uint32(im.mem[c:]))) }

// An arg is an argument of a system call: a number, or a cell to read it from.
type arg struct {
	v    uint64
	cell bool
}

// num is a plain number; negative ones are for AT_FDCWD and the like.
func num[T ~int | ~int32 | ~uint32 | ~uint64 | ~uintptr](v T) arg { return arg{v: uint64(v)} }

// of is the content of a cell at the time of the call.
func (im *image) of(c cell) arg { return arg{v: im.addr(int(c)), cell: true} }

// at is the address of a cell.
func (im *image) at(c cell) arg { return arg{v: im.addr(int(c))} }

// newCell reserves a cell that holds v.
func (im *image) newCell(v int32) cell {
	c := im.take(4)
	im.put32(c, uint32(v))
	return cell(c)
}

// bytes puts data into the image and answers with its address.
func (im *image) bytes(data ...byte) arg {
	at := im.take(len(data))
	copy(im.mem[at:], data)
	return num(im.addr(at))
}

// str puts a string with its NUL into the image.
func (im *image) str(s string) arg {
	at := im.take(len(s) + 1)
	copy(im.mem[at:], s)
	return num(im.addr(at))
}

// words puts numbers of 64 bits into the image, as most structures are made of.
func (im *image) words(vs ...uint64) arg {
	at := im.take(8 * len(vs))
	if im.err == nil {
		for i, v := range vs {
			im.put64(at+8*i, v)
		}
	}
	return num(im.addr(at))
}

// strs puts an array of strings that ends with a nil into the image.
func (im *image) strs(list []string) arg {
	vs := make([]uint64, len(list)+1)
	for i, s := range list {
		vs[i] = im.str(s).v
	}
	return im.words(vs...)
}

// A step is one system call in an image, for filling in what is unusual.
type step struct {
	im *image
	at int
}

// do adds a system call that follows the one added before.
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

// follow makes the last step go on at offset at, where it has no other place.
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

// path names the file that the step is about, for the error.
func (s step) path(p string) step {
	s.im.steps[len(s.im.steps)-1].path = p
	return s
}

// into puts the result into a new cell.
func (s step) into() (step, cell) {
	c := s.im.newCell(-1)
	return s.to(c), c
}

// to puts the result into c.
func (s step) to(c cell) step {
	s.im.put64(s.at+stepResult, s.im.addr(int(c)))
	return s
}

// result is into for those who need nothing else of the step.
func (s step) result() cell {
	_, c := s.into()
	return c
}

// quiet names errors, at most two, that are as good as success.
func (s step) quiet(errnos ...syscall.Errno) step {
	for i, e := range errnos {
		binary.NativeEndian.PutUint16(s.im.mem[s.at+stepQuiet+2*i:], uint16(e))
	}
	return s
}

// next, zero, fail and expect say where to go on after each outcome; with fail
// the error is one to report, with expect it only decides the way.
func (s step) next(to step) step { s.im.put64(s.at+stepNext, s.im.addr(to.at)); return s }
func (s step) zero(to step) step { s.im.put64(s.at+stepZero, s.im.addr(to.at)); return s }
func (s step) fail(to step) step { s.im.put64(s.at+stepFail, s.im.addr(to.at)); return s }

// anyhow makes every error as good as success; the result still tells.
func (s step) anyhow() step { return s.quiet(quietAll) }

func (s step) expect(to step) step {
	binary.NativeEndian.PutUint16(s.im.mem[s.at+stepQuiet+2:], expected)
	return s.fail(to)
}

// jump adds a step that does nothing, to go on at a place that is set later.
func (im *image) jump() step { return im.do(look, num(1)) }

// failure answers with what went wrong in the process, once it has stopped.
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
