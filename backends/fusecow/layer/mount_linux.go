package layer

import (
	"fmt"
	"io"
	"log" //nolint:depguard // the library takes one of its loggers, to be silent

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A Mount is the filesystem at a directory, until Unmount.
type Mount struct {
	server *fuse.Server
}

// Mount serves the filesystem at dir, in the mount namespace of this thread. It
// needs CAP_SYS_ADMIN there, and /dev/fuse. Devices and set-id bits have no
// effect where strict. Where the process that serves dies the mount stays, dead,
// as long as its namespace does.
func (f *FS) Mount(dir string, strict bool) (*Mount, error) {
	flags := uintptr(unix.MS_MGC_VAL)
	if strict {
		flags = unix.MS_NOSUID | unix.MS_NODEV
	}
	const extra = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_DONT_MASK | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_SETXATTR_EXT
	server, err := fuse.NewServer(raw{fuse.NewDefaultRawFileSystem(), f}, dir, &fuse.MountOptions{
		AllowOther: true, Options: []string{"default_permissions"}, FsName: "snapfs", Name: "fusecow",
		DirectMountStrict: true, DirectMountFlags: flags,
		MaxWrite: 1 << 20, EnableAcl: true, EnableSymlinkCaching: true, ExplicitDataCacheControl: true,
		DisableSplice:     true, // what is read is in memory already
		ExtraCapabilities: extra, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return nil, fmt.Errorf("mounting at %s: %w", dir, err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return nil, fmt.Errorf("mounting at %s: %w", dir, err)
	}
	return &Mount{server}, nil
}

// Unmount ends the mount. Errors: unix.EBUSY.
func (m *Mount) Unmount() error {
	if err := m.server.Unmount(); err != nil {
		return fmt.Errorf("unmounting: %w", err)
	}
	m.server.Wait()
	return nil
}

// Wait returns when the mount has ended.
func (m *Mount) Wait() { m.server.Wait() }
