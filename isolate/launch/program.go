//go:build linux

package launch

import (
	"encoding/binary"
	"runtime"
	"slices"
	"unsafe"
)

// loopBounds returns the addresses of the first instruction of the loop that executes an image, and of the first one
// after it. It is implemented in run_*.s.
//
//go:noescape
func loopBounds() (start, end unsafe.Pointer)

// programAddress is the address of a program's first byte in memory. Nothing else is there in a new process whose
// program has fixed addresses.
const programAddress = 0x10000000

// alignment is a multiple of the size of a page of every kernel.
const alignment = 64 << 10

// Sizes of the parts of an executable file, in bytes (elf(5)).
const (
	fileHeader    = 64
	segmentHeader = 56
	segments      = 3
)

// NewProgram returns an empty image, with space for size bytes, for [Image.Program]. Free has no effect on it.
func NewProgram(size int) *Image {
	im := &Image{mem: make([]byte, size), used: headSize, end: size}
	im.base = programAddress + alignment + uint64(dataOffset())
	return im
}

// loopCode returns the instructions of the loop that executes an image.
func loopCode() []byte {
	start, end := loopBounds()
	return unsafe.Slice((*byte)(start), max(0, int(uintptr(end)-uintptr(start))))
}

// dataOffset returns where the image is in the file of a program: after the headers and the instructions.
func dataOffset() int {
	return (fileHeader + segments*segmentHeader + len(entry(0, 0)) + len(loopCode()) + 7) &^ 7
}

// Program returns an executable file in the ELF format whose process executes the system calls of the image from step
// first on, and nothing else: it has no C library and no dynamic linker, and looks at no environment variable. The
// image must be one of [NewProgram], and one of the steps must end the process.
func (im *Image) Program(first Step) ([]byte, error) {
	if im.Err != nil {
		return nil, im.Err
	}
	const code = fileHeader + segments*segmentHeader
	offset := dataOffset()
	file := header()
	data := im.mem[:im.used]
	const load, stack, readExecute, readWrite = 1, 0x6474e551, 5, 6 // PT_LOAD, PT_GNU_STACK, PF_R|PF_X, PF_R|PF_W
	file = append(file, segment(load, readExecute, 0, programAddress, offset, offset)...)
	file = append(file, segment(load, readWrite, offset, im.base, len(data), len(data))...)
	file = append(file, segment(stack, readWrite, 0, 0, 0, 0)...) // the stack cannot be executed
	file = append(file, entry(im.Addr(first.At), im.Addr(0))...)
	file = append(file, loopCode()...)
	binary.LittleEndian.PutUint64(file[24:], programAddress+code)
	return slices.Concat(file, make([]byte, offset-len(file)), data), nil
}

// header returns the header of an executable file, without the address of its first instruction.
func header() []byte {
	machine := uint16(62) // EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = 183 // EM_AARCH64
	}
	h := make([]byte, fileHeader)
	copy(h, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(h[16:], 2) // ET_EXEC
	binary.LittleEndian.PutUint16(h[18:], machine)
	binary.LittleEndian.PutUint32(h[20:], 1)
	binary.LittleEndian.PutUint64(h[32:], fileHeader)
	binary.LittleEndian.PutUint16(h[52:], fileHeader)
	binary.LittleEndian.PutUint16(h[54:], segmentHeader)
	binary.LittleEndian.PutUint16(h[56:], segments)
	return h
}

// segment returns the header of one segment of an executable file: its kind and its PF_* flags, where it is in the
// file and in memory, and its sizes there.
func segment(kind, flags uint32, offset int, address uint64, inFile, inMemory int) []byte {
	h := make([]byte, segmentHeader)
	binary.LittleEndian.PutUint32(h, kind)
	binary.LittleEndian.PutUint32(h[4:], flags)
	for i, v := range []uint64{uint64(offset), address, address, uint64(inFile), uint64(inMemory), alignment} {
		binary.LittleEndian.PutUint64(h[8+8*i:], v)
	}
	return h
}

// entry returns the instructions before the loop in a program: they load the addresses of the first step and of the
// image's head into the registers that the loop uses.
func entry(first, head uint64) (code []byte) {
	if runtime.GOARCH == "arm64" {
		return append(loadARM64(19, first), loadARM64(20, head)...)
	}
	code = binary.LittleEndian.AppendUint64([]byte{0x48, 0xbb}, first)                 // MOVQ $first, BX
	return append(code, binary.LittleEndian.AppendUint64([]byte{0x49, 0xbc}, head)...) // MOVQ $head, R12
}

// loadARM64 returns the instructions that load value into a register of arm64, 16 bits at a time.
func loadARM64(register uint32, value uint64) (code []byte) {
	const movz, movk = 0xd2800000, 0xf2800000
	for i := range uint32(4) {
		op := uint32(movk)
		if i == 0 {
			op = movz
		}
		part := uint32(value>>(16*i)) & 0xffff
		code = binary.LittleEndian.AppendUint32(code, op|i<<21|part<<5|register)
	}
	return code
}
