//go:build unix

package agentsetup

import (
	"io/fs"
	"os"
	"syscall"
)

// sameOwner gives the file f, a new version of an agent's configuration, the owner of old, the file that it
// replaces. This matters if root edits a user's file; other users may not change owners, and get no error.
func sameOwner(f *os.File, old fs.FileInfo) error {
	st, ok := old.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
