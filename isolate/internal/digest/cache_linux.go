package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A Cache is a directory of the host in which [Verify] stores the digests of programs, so that the next start of a
// container need not read a program that has not changed: each is a symbolic link, named for a version of a program,
// whose target is the digest. "" stores nothing. No other user may write to the directory.
//
// A version is the path, the inode number, the size, and the times of the last changes of content (mtime) and of
// anything (ctime). The kernel sets the ctime to its clock at each write, and no process sets it to another time. So a
// program with the same version has the same content, also in another copy of its tree. The device is no part of a
// version, because each copy of a tree has another one.
type Cache string

// maxDigests is the greatest number of digests in a [Cache]. With more, it is emptied.
const maxDigests = 256

// entry returns the path of the link for the version of the program at path that has the attributes st.
func (c Cache) entry(path string, st *vfs.Stat) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %d %s", st.Ino, st.Size, st.MTime.Time().UnixNano(), st.CTime.Time().UnixNano(), path))
	return filepath.Join(string(c), hex.EncodeToString(sum[:24]))
}

// get returns the stored digest of the program at path, which has the attributes st, or "".
func (c Cache) get(path string, st *vfs.Stat) string {
	if c == "" || !vfs.IsPrivate(string(c)) {
		return ""
	}
	digest, err := os.Readlink(c.entry(path, st))
	if raw, herr := hex.DecodeString(digest); err != nil || herr != nil || len(raw) != sha256.Size {
		return ""
	}
	return digest
}

// put stores the digest of the program at path, whose attributes were before at the instant at, when its reading began,
// and after at its end. It stores nothing if the program has changed meanwhile, or may have changed since without a new
// ctime (see [vfs.Stat.Settled]). After an error nothing is stored, and the next start reads the program again.
func (c Cache) put(path, digest string, at time.Time, before, after *vfs.Stat) {
	if c == "" || !before.Settled(at) || before.CTime != after.CTime || before.Size != after.Size {
		return
	}
	if vfs.MakePrivate(string(c)) != nil {
		return
	}
	if all, err := os.ReadDir(string(c)); err == nil && len(all) >= maxDigests {
		for _, e := range all {
			_ = os.Remove(filepath.Join(string(c), e.Name())) // another process may have removed it
		}
	}
	_ = os.Symlink(digest, c.entry(path, before)) // another process may have stored the same
}
