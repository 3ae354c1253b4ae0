//go:build linux

// Package sysv measures the memory of the System V shared memory, semaphores and message queues of an IPC namespace.
// No process need have them mapped or open, so that the memory of processes does not show them.
package sysv

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// Files are the files below /proc that list the objects of an IPC namespace, in the order that [Objects] needs. The
// kernel shows the namespace of the process that opened a file to everyone who reads it.
var Files = [...]string{"sysvipc/shm", "sysvipc/sem", "sysvipc/msg"}

// The kernel's memory for one object, for one semaphore of a set, and for the head of a message, about.
const (
	objectMemory    = 512
	semaphoreMemory = 64
	messageMemory   = 64
)

// Objects are descriptors of open [Files] of one IPC namespace, or none.
type Objects []int

// Close closes the descriptors.
func (o *Objects) Close() {
	for _, fd := range *o {
		unix.Close(fd)
	}
	*o = nil
}

// Memory returns how many bytes the objects use, in memory and in the swap. It returns 0 without descriptors. Cost:
// reading a line for each object. It must not be called by two goroutines at once.
func (o Objects) Memory() (int64, error) {
	var sum int64
	for i, fd := range o {
		text, err := read(fd)
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(text) {
			sum += memoryOf(i, bytes.Fields(line))
		}
	}
	return sum, nil
}

// memoryOf returns the bytes of one object, which the fields of a line of Files[file] describe; 0 for the headline.
func memoryOf(file int, fields [][]byte) int64 {
	number := func(i int) int64 {
		if i >= len(fields) {
			return 0
		}
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	switch {
	case len(fields) == 0 || string(fields[0]) == "key":
		return 0
	case file == 0: // … 14 rss, 15 swap
		return objectMemory + number(14) + number(15)
	case file == 1: // key semid perms nsems
		return objectMemory + number(3)*semaphoreMemory
	}
	return objectMemory + number(3) + number(4)*messageMemory // key msqid perms cbytes qnum
}

// read reads the whole file from its beginning, without moving its offset.
func read(fd int) ([]byte, error) {
	var text []byte
	part := make([]byte, 32<<10)
	for {
		n, err := unix.Pread(fd, part, int64(len(text)))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return text, nil
		default:
			text = append(text, part[:n]...)
		}
	}
}
