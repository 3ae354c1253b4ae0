package idmap

import (
	"os"
	"runtime"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// creators are threads that create files with the user and group of the requesting process, so
// that a file has its owner from the first instant, and the filesystem handles inherited
// groups and ACLs. The threads have root's capabilities, because the kernel has already
// checked permissions.
type creators chan func()

const creatorThreads = 4

func newCreators() (creators, error) {
	m := make(creators)
	ready := make(chan error)
	for range creatorThreads {
		go m.work(ready)
		if err := <-ready; err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m creators) work(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: nothing else may run with these ids
	const noFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP, capabilities(7)
	err := unix.Unshare(unix.CLONE_FS)
	if err == nil && os.Geteuid() == 0 {
		err = unix.Prctl(unix.PR_SET_SECUREBITS, noFixup, 0, 0, 0)
	}
	ready <- err
	if err != nil {
		return
	}
	for do := range m {
		do()
	}
}

// as calls do on a thread with the given umask and with the user and group of the process caller, mapped to
// the ids that they have on disk. Files that do creates so belong to that process. EOVERFLOW: the ids are not
// mapped.
func (s *server) as(caller fuse.Owner, umask uint32, do func() error) (err error) {
	uid, err := s.ids.toDisk(caller.Uid)
	if err != nil {
		return err
	}
	gid, err := s.ids.toDisk(caller.Gid)
	if err != nil {
		return err
	}
	done := make(chan error)
	s.creators <- func() {
		unix.Umask(int(umask & 0o777)) //nolint:forbidigo // this thread's own, since it has left CLONE_FS
		err := unix.Setfsgid(int(gid))
		if err == nil {
			err = unix.Setfsuid(int(uid))
		}
		if err == nil {
			err = do()
		}
		_, _ = unix.Setfsuid(os.Geteuid()), unix.Setfsgid(os.Getegid()) // cannot fail
		done <- err
	}
	return <-done
}
