package stdio

import (
	"os"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Stream observes the pipe, terminal or other file behind a descriptor without opening it for input or
// output, so that the other end of a pipe sees no additional reader or writer. snapfs asks it when the stream
// was last used. Linux only.
type Stream struct {
	place  *os.File // O_PATH
	socket *os.File // a socket itself, which has no place; nil for all others
	// Coarse is set if the kernel updates the file's times only every 8 seconds, as those of
	// terminals (tty_update_time in drivers/tty/tty_io.c).
	Coarse bool
	// again is set if the file can be opened a second time to count its unread bytes.
	again bool
}

// Observe returns a [Stream] that observes the pipe, terminal, socket or other file f. The caller closes it.
// While a Stream of a socket is open, the peer does not see the end of the connection. On other systems than
// Linux it returns an error.
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
		if s.socket, err = vfs.Duplicate(f); err != nil {
			place.Close()
			return nil, err
		}
	}
	return s, nil
}

// Used returns the time of the last read or write of the observed pipe or terminal. The kernel does not note
// it for sockets, nor for anonymous pipes since Linux 6.15.
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

// Typed returns the time of the last write to the observed pipe or terminal. For the outer end of a terminal
// that is when the user last pressed a key.
func (s *Stream) Typed() time.Time {
	st, err := vfs.Lstat(int(s.place.Fd()), "")
	if err != nil {
		return time.Time{}
	}
	return st.MTime.Time()
}

// Waiting returns the number of bytes that wait to be read from a pipe, socket or terminal; 0 if that cannot
// be found out.
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

// Close ends the observation of the file and closes the descriptor that was used for it.
func (s *Stream) Close() {
	s.place.Close()
	if s.socket != nil {
		s.socket.Close()
	}
}
