//go:build linux

package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A notices holds the files through which the kernel reports that a limit was hit, in one epoll instance.
// (Inotify also works, but takes 10 ms to close.)
type notices struct {
	epoll *os.File
	files []*os.File
}

// subscribe opens the files through which the kernel reports limits that are hit: a counter's file reports
// EPOLLPRI when it changes, and version 1 reports memory through an eventfd
// (Documentation/admin-guide/cgroup-v1/memory.rst, "OOM Control"). It returns nil if no control group can
// report.
func (g *Group) subscribe() (*notices, error) {
	pids, memory := g.find("pids"), g.find("memory")
	if pids == nil && memory == nil {
		return nil, nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, failed("watching limits", "epoll", err)
	}
	n := &notices{epoll: os.NewFile(uintptr(fd), "epoll")}
	if pids != nil {
		err = n.counter(fd, pids, "pids.events")
	}
	switch {
	case err != nil || memory == nil:
	case memory.version == 1:
		err = n.eventfd(fd, memory)
	default:
		err = n.counter(fd, memory, "memory.events")
	}
	if err != nil {
		n.close()
		return nil, failed("watching limits", g.members[0].path, err)
	}
	return n, nil
}

// counter opens file, a counter of the control group m, and adds it to the epoll instance, which then reports
// each change (EPOLLPRI). It adds nothing if the kernel has no such file.
func (n *notices) counter(epoll int, m *member, file string) error {
	f, err := os.Open(m.path + "/" + file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel before 4.8; [Group.LimitHit] checks the limit
	}
	if err != nil {
		return err
	}
	n.files = append(n.files, f)
	var buf [256]byte
	if _, err := f.Read(buf[:]); err != nil {
		return err
	}
	return n.add(epoll, f, unix.EPOLLPRI)
}

// eventfd adds to the epoll instance an eventfd(2) through which the kernel reports that the memory of the
// control group m, of cgroup version 1, is exhausted.
func (n *notices) eventfd(epoll int, m *member) error {
	control, err := os.Open(m.path + "/memory.oom_control")
	if err != nil {
		return err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	f := os.NewFile(uintptr(fd), "eventfd")
	n.files = append(n.files, f)
	if err := m.write("cgroup.event_control", fmt.Sprint(fd, " ", control.Fd())); err != nil {
		return err
	}
	return n.add(epoll, f, unix.EPOLLIN)
}

func (n *notices) add(epoll int, f *os.File, what uint32) error {
	event := unix.EpollEvent{Events: what | unix.EPOLLET}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, int(f.Fd()), &event))
}

// listen makes the watcher check the container's limits each time the kernel reports a hit through n, until n
// is closed.
func (w *watcher) listen(n *notices) {
	conn, err := n.epoll.SyscallConn()
	for err == nil {
		err = conn.Read(func(fd uintptr) bool {
			var events [4]unix.EpollEvent
			count, err := unix.EpollWait(int(fd), events[:], 0)
			return count > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err == nil {
			w.poke()
		}
	}
}

func (n *notices) close() {
	n.epoll.Close()
	for _, f := range n.files {
		f.Close()
	}
}
