//go:build linux

package launch

import (
	"encoding/binary"
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Image is a program of system calls, with all data that they point to, in memory that the
// supervisor shares with the process that executes it.
//
// That process is a forked copy of a Go program in which no Go code may run, because other
// threads may have held locks of the runtime. Instead the loop in run_*.s reads steps from the
// image and makes system calls. The loop uses neither stack nor functions, only registers, and
// can even fork with vfork and continue in both processes.
//
// The process stores results and the cause of a failure in the image, where the supervisor
// reads them. The supervisor appends new steps where the process will continue; an image only
// grows.
type Image struct {
	mem   []byte
	base  uint64 // the address of mem in the process that executes it, or 0: the same as here
	used  int
	end   int // of the usable memory
	Last  int // offset of the step that precedes the next one, or 0
	OnErr int // offset of the step to continue with after an error
	Stage string
	steps []Purpose
	Err   error
}

// A Purpose says in an error what a failed system call of an [Image], a prepared list of system calls, was
// for: the stage, such as "mounting /proc", and a file or "".
type Purpose struct {
	at          int
	Stage, Path string
}

// Offsets, in bytes, of the fields of one system call in an [Image], a prepared list of system calls. The
// assembly loop in run_*.s, which executes the list, uses the same.
const (
	stepCall   = 0  // the system call's number, or Load
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

	// Load stands in place of a system call number in a step of an [Image] that makes no system call. The
	// result of the step is its first argument, so that it can copy a value or jump.
	Load = ^uint64(0)

	// headFailed and its siblings are offsets in the head of an [Image], a list of system calls in shared
	// memory. There the process that executes the list writes which system call failed and why.
	headFailed = 0 // address of the step that failed
	headErrno  = 8 // int32: its errno
	headSize   = 64
)

// A Cell is the offset of an int32 in an [Image], the memory with the system calls that a process executes.
// The process stores the result of a system call there, or loads an argument from there.
type Cell int

// imageSize is the size in bytes of an [Image], the shared memory with a process's prepared system calls:
// twice the limit of a command's arguments and environment, which is about the kernel's own limit. Unused
// pages take no memory.
const imageSize = 8 << 20

// NewImage maps memory for an empty image of system calls; Free unmaps it. Cost: 10 µs.
func NewImage() (*Image, error) {
	mem, err := unix.Mmap(-1, 0, imageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	return &Image{mem: mem, used: headSize, end: imageSize, steps: make([]Purpose, 0, 512)}, nil
}

// Free unmaps the memory of the image, after the process that executes it has ended. It may be called twice.
func (im *Image) Free() {
	if im.mem != nil && im.base == 0 {
		unix.Munmap(im.mem) //nolint:errcheck // the kernel gave it
		im.mem = nil
	}
}

// A Region is a part of an [Image], the memory with pid 1's system calls, between two offsets. It holds the
// system calls of one request to pid 1.
type Region struct{ from, to int }

// Regions divides the free part of the memory that pid 1 and its supervisor share into two regions for
// requests, to be used in turn: pid 1 reports a request before it has executed the last system calls of the
// request, which the next request must not overwrite.
func (im *Image) Regions() [2]Region {
	middle := (im.used + (len(im.mem)-im.used)/2) &^ 7
	return [2]Region{{im.used, middle}, {middle, len(im.mem)}}
}

// Rewind makes the next system call that is added to the image go to the beginning of the region r, where the
// supervisor writes a request to pid 1. It discards the system calls and errors that an earlier request has
// left there.
func (im *Image) Rewind(r Region) {
	at := r.from
	im.used, im.end, im.Last, im.Err = at, r.to, 0, nil
	im.Put64(headFailed, 0)
	for i, s := range im.steps {
		if s.at >= at {
			im.steps = im.steps[:i]
			break
		}
	}
}

// Addr returns the memory address of the byte at offset off of the image, for an argument of a system call.
// The address is the same in every process that shares the image. Go's collector neither moves nor frees this
// memory.
func (im *Image) Addr(off int) uint64 {
	if im.base != 0 {
		return im.base + uint64(off)
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(im.mem)))) + uint64(off)
}

// ErrImageFull is the error of an [Image] (the memory with a process's prepared system calls) without space
// for more, because a command's arguments are too long.
var ErrImageFull = errors.New("arguments and environment are too long")

// Take reserves n zero bytes of the image, the memory with prepared system calls, aligned to 8, for data that
// one of them reads or writes, and returns their offset. Without space it sets im.Err to ErrImageFull.
func (im *Image) Take(n int) int {
	at := im.used
	if n > im.end-at-8 {
		im.Err = ErrImageFull
		return headSize
	}
	im.used = (at + n + 7) &^ 7
	clear(im.mem[at:im.used])
	return at
}

// Put64 stores the 64-bit number v in the image, the memory with prepared system calls, at the offset off: a
// part of a call, or data for one.
func (im *Image) Put64(off int, v uint64) { binary.NativeEndian.PutUint64(im.mem[off:], v) }

// Put32 stores the 32-bit number v in the image, the memory with prepared system calls, at the offset off: a
// part of a call, or data for one.
func (im *Image) Put32(off int, v uint32) { binary.NativeEndian.PutUint32(im.mem[off:], v) }

// Get returns the present value of the cell c, such as the result of a system call that the executing process
// has stored there.
func (im *Image) Get(c Cell) int { return int(int32(binary.NativeEndian.Uint32(im.mem[c:]))) }

// An Arg is an argument of a system call that an [Image] prepares for another process: a number, or a cell
// (an int32 in the image) from which the executing process loads it.
type Arg struct {
	V    uint64
	cell bool
}

// Num returns an argument with the constant value v for a system call of an [Image], a prepared list of
// system calls. v may be a negative number such as AT_FDCWD.
func Num[T ~int | ~int32 | ~uint32 | ~uint64 | ~uintptr](v T) Arg { return Arg{V: uint64(v)} }

// Of returns an argument of a prepared system call of the image. Its value is the content of the cell c, an
// int32 such as an earlier result, when the executing process makes the call.
func (im *Image) Of(c Cell) Arg { return Arg{V: im.Addr(int(c)), cell: true} }

// At returns an argument of a prepared system call whose value is the address of the cell c, an int32 in the
// image, for the kernel to read or write it.
func (im *Image) At(c Cell) Arg { return Arg{V: im.Addr(int(c))} }

// NewCell reserves a cell, an int32 in the image for the result of a system call, with the initial value v.
func (im *Image) NewCell(v int32) Cell {
	c := im.Take(4)
	im.Put32(c, uint32(v))
	return Cell(c)
}

// Bytes appends data to the image, the memory with prepared system calls, and returns its address, as an
// argument of a system call that reads or writes memory.
func (im *Image) Bytes(data ...byte) Arg {
	at := im.Take(len(data))
	copy(im.mem[at:], data)
	return Num(im.Addr(at))
}

// Str appends s, NUL-terminated, to the image, the memory with prepared system calls, and returns its
// address, as an argument of a system call.
func (im *Image) Str(s string) Arg {
	at := im.Take(len(s) + 1)
	copy(im.mem[at:], s)
	return Num(im.Addr(at))
}

// Words appends 64-bit numbers, such as the fields of a structure, to the image, the memory with prepared
// system calls, and returns their address, as an argument of a system call.
func (im *Image) Words(vs ...uint64) Arg {
	at := im.Take(8 * len(vs))
	if im.Err == nil {
		for i, v := range vs {
			im.Put64(at+8*i, v)
		}
	}
	return Num(im.Addr(at))
}

// Strs appends a nil-terminated array of strings, such as execve's, to the image, the memory with prepared
// system calls, and returns its address, as an argument of a system call.
func (im *Image) Strs(list []string) Arg {
	vs := make([]uint64, len(list)+1)
	for i, s := range list {
		vs[i] = im.Str(s).V
	}
	return im.Words(vs...)
}

// A Step is one system call of an [Image], the prepared list that a forked process executes. Its methods say
// where the result goes and which step follows.
type Step struct {
	im *Image
	At int
}

// Do appends a system call with its arguments to the image, the list of system calls that another process
// executes. That process makes it after the one appended before, unless a method of that one's [Step], such
// as [Step.Next], set another.
func (im *Image) Do(call uint64, args ...Arg) Step {
	at := im.Take(stepSize)
	if im.Err != nil {
		return Step{im, at}
	}
	im.Put64(at+stepCall, call)
	var cells uint32
	for i, a := range args {
		im.Put64(at+stepArgs+8*i, a.V)
		if a.cell {
			cells |= 1 << i
		}
	}
	im.Put32(at+stepCells, cells)
	if im.OnErr != 0 {
		im.Put64(at+stepFail, im.Addr(im.OnErr))
	}
	im.follow(at)
	im.Last = at
	im.steps = append(im.steps, Purpose{at: at, Stage: im.Stage})
	return Step{im, at}
}

// follow makes the step (system call) that was appended last continue with the step at offset at, unless its
// next step is set.
func (im *Image) follow(at int) {
	if im.Last == 0 {
		return
	}
	for _, field := range []int{stepNext, stepZero} {
		if binary.NativeEndian.Uint64(im.mem[im.Last+field:]) == 0 {
			im.Put64(im.Last+field, im.Addr(at))
		}
	}
}

// Path sets the file that an error of the system call s names to the user, and returns the step.
func (s Step) Path(p string) Step {
	s.im.steps[len(s.im.steps)-1].Path = p
	return s
}

// To makes the system call s store its result in the cell c, from which later calls can load it, and returns
// the step.
func (s Step) To(c Cell) Step {
	s.im.Put64(s.At+stepResult, s.im.Addr(int(c)))
	return s
}

// Result makes the system call s store its result in a new cell, from which later calls can load it, and
// returns that cell.
func (s Step) Result() Cell {
	c := s.im.NewCell(-1)
	s.To(c)
	return c
}

// Tolerate makes the given error numbers of the system call s, at most two, count as success, and returns the
// step.
func (s Step) Tolerate(errnos ...syscall.Errno) Step {
	for i, e := range errnos {
		binary.NativeEndian.PutUint16(s.im.mem[s.At+stepQuiet+2*i:], uint16(e))
	}
	return s
}

// Next sets the step that the executing process continues with after the system call s if the result of s is
// positive. It returns s.
func (s Step) Next(to Step) Step { s.im.Put64(s.At+stepNext, s.im.Addr(to.At)); return s }

// Zero sets the step that the executing process continues with after the system call s if the result of s is
// zero. It returns s.
func (s Step) Zero(to Step) Step { s.im.Put64(s.At+stepZero, s.im.Addr(to.At)); return s }

// Fail sets the step that follows an error of the system call s, and returns s. The error is recorded for
// [Image.Failure]; Expect does not record it.
func (s Step) Fail(to Step) Step { s.im.Put64(s.At+stepFail, s.im.Addr(to.At)); return s }

// IgnoreErrors makes every error of the system call s, one of a prepared list that the new process executes,
// count as success: the list goes on with the next one. The stored result still holds the error.
func (s Step) IgnoreErrors() Step { return s.Tolerate(quietAll) }

// Expect sets the step that follows an error of s which is no failure: it is not recorded for
// [Image.Failure].
func (s Step) Expect(to Step) Step {
	binary.NativeEndian.PutUint16(s.im.mem[s.At+stepQuiet+2:], expected)
	return s.Fail(to)
}

// Jump appends a step that makes no system call: it only leads to another step, which the caller sets with
// [Step.Next].
func (im *Image) Jump() Step { return im.Do(Load, Num(1)) }

// Failure returns the purpose of the system call that failed, and its error, once the process that executes
// the image's list of system calls has ended. errno is 0 if none failed.
func (im *Image) Failure() (where Purpose, errno syscall.Errno) {
	at := binary.NativeEndian.Uint64(im.mem[headFailed:])
	if at == 0 {
		return Purpose{}, 0
	}
	errno = syscall.Errno(binary.NativeEndian.Uint32(im.mem[headErrno:]))
	for _, s := range im.steps {
		if im.Addr(s.at) == at {
			return s, errno
		}
	}
	return Purpose{Stage: "starting"}, errno
}

// ReportSize is the size in bytes of a report that pid 1 sends its supervisor: four int32.
const ReportSize = 16

// Message appends a report of pid 1 to its supervisor, of this kind and with n descriptors, to the image. It
// returns the msghdr for sendmsg(2), and the cells of the report's fields and descriptors, to be filled
// before it is sent.
func (im *Image) Message(kind, n int) (msg Arg, pid, status, request Cell, fds []Cell) {
	data := im.Take(ReportSize)
	im.Put32(data, uint32(kind))
	iov := im.Words(im.Addr(data), ReportSize)
	var control, size uint64
	if n > 0 {
		at := im.Take(unix.CmsgSpace(4 * n))
		im.Put64(at, uint64(unix.CmsgLen(4*n)))
		im.Put32(at+8, unix.SOL_SOCKET)
		im.Put32(at+12, unix.SCM_RIGHTS)
		for i := range n {
			c := Cell(at + unix.CmsgLen(0) + 4*i)
			im.Put32(int(c), ^uint32(0))
			fds = append(fds, c)
		}
		control, size = im.Addr(at), uint64(unix.CmsgLen(4*n))
	}
	msg = im.Words(0, 0, iov.V, 1, control, size, 0)
	return msg, Cell(data + 4), Cell(data + 8), Cell(data + 12), fds
}
