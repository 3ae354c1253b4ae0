package stdio

import (
	"os"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Stream observes the file behind a descriptor without opening it for input or output, so that
// the other end of a pipe sees no additional reader or writer. Linux only.
type Stream struct {
	place  *os.File // O_PATH
	socket *os.File // a socket itself, which has no place; nil for all others
	// Coarse: the kernel tells its times in steps of 8 seconds, as those of
	// terminals (tty_update_time in drivers/tty/tty_io.c).
	Coarse bool
	// again: it can be opened once more to see what waits in it.
	again bool
}

// Observe returns the stream of f. The caller closes it; one of a socket before its peer is to
// see the end. On other systems than Linux it fails.
func Observe(f *os.File) (*Stream, error) {
	place, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	st, err := vfs.Lstat(int(place.Fd()), "")
	if err != nil {
		place.Close()
		return nil, err
	}
	kind := st.Mode & unix.S_IFMT
	s := &Stream{place: place, Coarse: kind == unix.S_IFCHR}
	// A terminal is 4:N or, on a pty, 136:N to 143:N (Documentation/admin-guide/devices.txt).
	major := unix.Major(st.Rdev)
	s.again = kind == unix.S_IFIFO || kind == unix.S_IFCHR && (major == 4 || major >= 136 && major <= 143)
	if kind == unix.S_IFSOCK {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			place.Close()
			return nil, os.NewSyscallError("fcntl", err)
		}
		s.socket = os.NewFile(uintptr(fd), f.Name())
	}
	return s, nil
}

// Used returns the time of the last read or write, if the kernel records it: not for sockets,
// and not for anonymous pipes since Linux 6.15.
func (s *Stream) Used() time.Time {
	st, err := vfs.Lstat(int(s.place.Fd()), "")
	if err != nil {
		return time.Time{}
	}
	if st.ATime.After(st.MTime) {
		return st.ATime.Time()
	}
	return st.MTime.Time()
}

// Typed returns the time of the last write; on the outer end of a terminal, of the last key.
func (s *Stream) Typed() time.Time {
	st, err := vfs.Lstat(int(s.place.Fd()), "")
	if err != nil {
		return time.Time{}
	}
	return st.MTime.Time()
}

// Waiting returns the number of unread bytes of a pipe, socket or terminal.
func (s *Stream) Waiting() int {
	from := s.socket
	if s.again {
		end, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(s.place.Fd())), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return 0 // another user's
		}
		defer end.Close()
		from = end
	}
	if from == nil {
		return 0
	}
	n, err := Unread(from)
	if err != nil {
		return 0 // not a socket of streams
	}
	return n
}

// Close stops looking.
func (s *Stream) Close() {
	s.place.Close()
	if s.socket != nil {
		s.socket.Close()
	}
}
