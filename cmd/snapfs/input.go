package main

import (
	"io"
	"os"

	"github.com/snapfs/snapfs/internal/stdio"
)

// A feed is what stands between a command in a sandbox and a real file that it
// gets to read. With the file itself a command of the same user could do more
// than read: open it again for writing by /proc/self/fd/0, or change its mode.
type feed struct {
	from  *os.File
	start int64
	sent  int64 // until done is closed, the pump's
	done  chan struct{}
	r, w  *os.File
}

// newFeed answers nil where in may be handed over as it is: what can be written
// to anyway, what is no file of a disk, and for root, whose sandboxes run as
// nobody whom a file belongs to.
func newFeed(in *os.File) (*feed, error) {
	info, err := in.Stat()
	if err != nil || os.Geteuid() == 0 || !stdio.ReadOnly(in) {
		return nil, nil //nolint:nilerr // a closed input is the command's to find
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

// pump does not move the file's offset: how far the command has read is only
// known at the end.
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

// end leaves the file's offset, which is shared with whoever started snapfs,
// where the command has stopped reading.
func (f *feed) end() {
	f.w.Close() // wakes the pump
	<-f.done
	left, err := stdio.Unread(f.r)
	f.r.Close()
	if err == nil {
		f.from.Seek(f.start+max(f.sent-int64(left), 0), io.SeekStart) //nolint:errcheck // it could be sought before
	}
}
