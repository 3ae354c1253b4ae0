package main

import (
	"io"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/internal/stdio"
)

// A feed copies a regular file, the standard input of snapfs, to a command in a sandbox through a pipe. A
// command that got the file itself could do more than read if it runs as the same user: open the file for
// writing by /proc/self/fd/0, or change its mode. Root's sandboxes have other user ids. There a command could do so
// with a file that others may write, or that belongs to one of these ids, and could not open by /dev/stdin a file
// that only root may read.
type feed struct {
	from  *os.File
	start int64
	sent  int64 // until done is closed, the pump's
	done  chan struct{}
	r, w  *os.File
}

// newFeed returns a feed for the standard input in. It returns nil if the sandbox may get the file itself:
// the user can write to it anyway, it is not a file on a disk, or snapfs runs as root and everyone may read
// the file, and only root write to it.
func newFeed(in *os.File) (*feed, error) {
	info, err := in.Stat()
	if err != nil || !stdio.ReadOnly(in) {
		return nil, nil //nolint:nilerr // a closed input is the command's to find
	}
	if os.Geteuid() == 0 && rootsAlone(info) {
		return nil, nil
	}
	disk := info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice
	if !info.Mode().IsRegular() && !disk {
		return nil, nil
	}
	f := &feed{from: in, done: make(chan struct{})}
	if f.start, err = in.Seek(0, io.SeekCurrent); err != nil {
		return nil, err
	}
	if f.r, f.w, err = os.Pipe(); err != nil {
		return nil, err
	}
	go f.pump()
	return f, nil
}

// rootsAlone reports whether root may hand over a file to a sandbox, which has other user ids: everyone may read it, and
// only root may write to it or change it. A group, or a further user by an access control list, may write only with
// the group's bit of the mode. Of a disk, a group of this host may write to it.
func rootsAlone(info os.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return info.Mode()&0o002 == 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0 && info.Mode()&0o026 == 0o004
}

// pump copies the file to the pipe. It does not move the file's offset, because only [feed.end] knows how far
// the command has read.
func (f *feed) pump() {
	defer close(f.done)
	defer f.w.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.from.ReadAt(buf, f.start+f.sent)
		m, werr := f.w.Write(buf[:n])
		f.sent += int64(m)
		if err != nil || werr != nil {
			return
		}
	}
}

// end moves the file's offset, which snapfs shares with its parent process, to the position at
// which the command stopped reading.
func (f *feed) end() {
	f.w.Close() // wakes the pump
	<-f.done
	left, err := stdio.Unread(f.r)
	f.r.Close()
	if err == nil {
		f.from.Seek(f.start+max(f.sent-int64(left), 0), io.SeekStart) //nolint:errcheck // it could be sought before
	}
}
