//go:build linux

package trial_test

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// slot returns a random name.
func (m *model) slot() string {
	all := slots()
	return all[m.rnd.IntN(len(all))]
}

func (m *model) reopen(f *file) error {
	flags := 0
	if m.rnd.IntN(8) == 0 {
		flags = unix.O_TRUNC
		f.touch(true)
		m.note(f.number, 0, len(f.data), "open to cut")
	}
	if len(f.open) == maxOpen {
		m.close(f, m.rnd.IntN(maxOpen))
	}
	if _, err := m.openAt(f, flags); err != nil {
		return err
	}
	if flags != 0 {
		f.resize(0)
	}
	return nil
}

func (m *model) drop(f *file) error {
	if len(f.open) > 0 {
		m.note(f.number, 0, 0, "close")
		m.close(f, m.rnd.IntN(len(f.open)))
	}
	return nil
}

// room reports whether another file may be created.
func (m *model) room() bool { return len(m.files) < maxFiles }

// create creates a file, or opens and truncates the existing one.
func (m *model) create(*file) error {
	name := m.slot()
	f := m.names[name]
	if f != nil && len(f.open) == maxOpen || f == nil && !m.room() {
		return nil
	}
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_CLOEXEC
	if m.rnd.IntN(2) == 0 {
		flags |= unix.O_EXCL
	} else if f != nil {
		flags |= unix.O_TRUNC
		f.touch(true)
		m.note(f.number, 0, len(f.data), "create anew, %s", name)
	}
	var fds pair
	err := both(func(side int) (err error) {
		fds[side], err = unix.Open(m.path(side, name), flags, 0o644)
		return err
	})
	if err != nil {
		if f == nil || flags&unix.O_EXCL == 0 {
			return err
		}
		return refused(err)
	}
	if f == nil {
		f = m.newFile()
		f.touch(true)
		m.name(name, f)
		m.note(f.number, 0, maxSize, "create %s", name)
	} else {
		f.resize(0)
	}
	f.open = append(f.open, fds)
	return nil
}

// tmpfile creates a file without a name, and may link it.
func (m *model) tmpfile(*file) error {
	if !m.room() {
		return nil
	}
	var fds pair
	err := both(func(side int) (err error) {
		fds[side], err = unix.Open(m.dirs[side], unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return err
	}
	f := m.newFile()
	f.touch(true)
	f.open = append(f.open, fds)
	m.note(f.number, 0, maxSize, "made without a name")
	if m.rnd.IntN(2) == 0 {
		return nil
	}
	return m.linkOpen(f, m.slot())
}

// linkOpen links an open file.
func (m *model) linkOpen(f *file, name string) error {
	err := both(func(side int) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.open[0][side]), unix.AT_FDCWD, m.path(side, name), unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return refused(err)
	}
	m.name(name, f)
	m.note(f.number, 0, maxSize, "linked as %s", name)
	return nil
}

func (m *model) link(*file) error {
	old, name := m.slot(), m.slot()
	err := both(func(side int) error {
		return unix.Linkat(unix.AT_FDCWD, m.path(side, old), unix.AT_FDCWD, m.path(side, name), 0)
	})
	if err != nil {
		return m.noneOr(err, old, name)
	}
	m.name(name, m.names[old])
	m.note(m.names[old].number, 0, maxSize, "link %s to %s", name, old)
	return nil
}

// noneOr accepts that both sides refuse: ENOENT for a missing source, EEXIST for an existing target.
func (m *model) noneOr(err error, name, other string) error {
	switch {
	case errors.Is(err, unix.ENOENT) && m.names[name] == nil, errors.Is(err, unix.EEXIST) && m.names[other] != nil:
		return refused(err)
	}
	return err
}

func (m *model) unlink(*file) error {
	name := m.slot()
	err := both(func(side int) error { return unix.Unlink(m.path(side, name)) })
	if err != nil {
		return m.noneOr(err, name, name)
	}
	m.note(m.names[name].number, 0, maxSize, "unlink %s", name)
	m.unname(name)
	return nil
}

func (m *model) rename(*file) error {
	from, to := m.slot(), m.slot()
	flags := []uint{0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[m.rnd.IntN(4)]
	err := both(func(side int) error {
		return unix.Renameat2(unix.AT_FDCWD, m.path(side, from), unix.AT_FDCWD, m.path(side, to), flags)
	})
	a, b := m.names[from], m.names[to]
	if err != nil {
		if flags == unix.RENAME_EXCHANGE && b == nil {
			return refused(err)
		}
		return m.noneOr(err, from, to)
	}
	m.note(a.number, 0, maxSize, "rename %s to %s with %d", from, to, flags)
	if a == b {
		return nil
	}
	if b != nil {
		m.note(b.number, 0, maxSize, "was %s when %s was renamed to it with %d", to, from, flags)
		m.unname(to)
	}
	m.name(to, a)
	m.unname(from)
	if flags == unix.RENAME_EXCHANGE {
		m.name(from, b)
		m.keep(b)
	}
	return nil
}

// keep restores a file that was dropped while it had no name.
func (m *model) keep(f *file) {
	for _, o := range m.files {
		if o == f {
			return
		}
	}
	m.files = append(m.files, f)
}

// renameDirs exchanges the two directories.
func (m *model) renameDirs(*file) error {
	err := both(func(side int) error {
		return unix.Renameat2(unix.AT_FDCWD, m.path(side, "x"), unix.AT_FDCWD, m.path(side, "y"), unix.RENAME_EXCHANGE)
	})
	if err != nil {
		return err
	}
	m.note(0, 0, 0, "exchange the directories")
	names := map[string]*file{}
	for name, f := range m.names {
		dir, base, _ := strings.Cut(name, "/")
		names[map[string]string{"x": "y", "y": "x"}[dir]+"/"+base] = f
	}
	m.names = names
	for _, name := range slots() {
		m.renamed[name] = true
	}
	return nil
}

func (m *model) list(*file) error {
	for _, dir := range []string{"x", "y"} {
		if err := both(func(side int) error { return m.compareNames(side, dir) }); err != nil {
			return err
		}
	}
	return nil
}
