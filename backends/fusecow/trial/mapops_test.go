//go:build linux

package trial_test

import (
	"golang.org/x/sys/unix"
)

const maxMaps = 2 // per file

// mapping returns an existing mapping or a new one.
func (m *model) mapping(f *file) ([2][]byte, error) {
	if len(f.maps) > 0 && (len(f.maps) == maxMaps || m.rnd.IntN(3) > 0) {
		return f.maps[m.rnd.IntN(len(f.maps))], nil
	}
	fds, err := m.handle(f)
	if err != nil {
		return [2][]byte{}, err
	}
	var maps [2][]byte
	err = both(func(side int) (err error) {
		maps[side], err = unix.Mmap(fds[side], 0, maxSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	if err == nil {
		f.maps = append(f.maps, maps)
	}
	return maps, err
}

// span returns a random range of a file.
func (m *model) span(f *file) (at, end int) {
	at = m.place(f)
	if at >= len(f.data) {
		return 0, 0
	}
	return at, min(len(f.data), at+m.size(maxSize))
}

func (m *model) readMap(f *file) error {
	maps, err := m.mapping(f)
	if err != nil {
		return err
	}
	at, end := m.span(f)
	m.note(f.number, at, end, "read a mapping")
	return both(func(side int) error { return m.differ(f, at, maps[side][at:end], f.data[at:end], "mapping") })
}

func (m *model) writeMap(f *file) error {
	maps, err := m.mapping(f)
	if err != nil {
		return err
	}
	at, end := m.span(f)
	f.touch(true)
	f.mapped = f.mapped || end > at
	m.note(f.number, at, end, "write a mapping")
	m.fill(f.data[at:end])
	for side := range maps {
		copy(maps[side][at:end], f.data[at:end])
	}
	return nil
}

func (m *model) msync(f *file) error {
	if len(f.maps) == 0 {
		return nil
	}
	m.note(f.number, 0, len(f.data), "msync")
	return unix.Msync(f.maps[0][tried], unix.MS_SYNC)
}

func (m *model) dropMap(f *file) error {
	if len(f.maps) > 0 {
		m.note(f.number, 0, 0, "unmap")
		m.unmapFirst(f)
	}
	return nil
}
