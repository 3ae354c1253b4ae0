package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A pinned is a program of a container whose content is compared with a digest: its path after symbolic links, its
// inode, the number of names that the inode has, and the SHA-256 digest of its content in hexadecimal.
type pinned struct {
	path     string
	dev, ino uint64
	names    uint64
	digest   string
}

// Verify compares programs of a container, in its finished tree, with their digests. root is a descriptor of the
// container's root directory. The caller has made each program read-only there under its path. Each other name of the
// program's inode (a hard link) must be in the list too, because a process could write to the program by that name.
// It reads a program whose digest is not in the cache. Errors: ErrContent; those of reading the programs.
func Verify(root int, programs []Program, cache Cache) error {
	wanted := map[string][]string{}
	var paths []string
	for _, d := range programs {
		if wanted[d.Path] == nil {
			paths = append(paths, d.Path)
		}
		wanted[d.Path] = append(wanted[d.Path], d.SHA256)
	}
	var all []pinned
	for _, path := range paths {
		p, err := pin(root, path, all, cache)
		if err != nil {
			return errs.Wrap(verifying, path, err)
		}
		if !slices.Contains(wanted[path], p.digest) {
			return wrongDigest(path, fmt.Errorf("%w: it has sha256:%s, and only sha256:%s may be executed", ErrContent, p.digest, strings.Join(wanted[path], " or sha256:")),
				"if you trust the program as it is, replace the digest in the profile")
		}
		if !slices.ContainsFunc(all, func(other pinned) bool { return other.path == p.path }) {
			all = append(all, p)
		}
	}
	for _, p := range all {
		var listed uint64
		for _, other := range all {
			if other.dev == p.dev && other.ino == p.ino {
				listed++
			}
		}
		if listed < p.names {
			return wrongDigest(p.path, fmt.Errorf("the file has %d names (hard links), and a process could change it by one that has no digest in the profile", p.names),
				"find / -xdev -samefile "+errs.Quoted(p.path)+"   # add the others with the same digest")
		}
	}
	return nil
}

// verifying is the operation in errors of this package.
const verifying = "verifying programs"

// wrongDigest returns the error for the program at path that must not be executed because of err. hint is the command
// or the act that mends it.
func wrongDigest(path string, err error, hint string) error {
	return &errs.Error{Op: verifying, Path: path, Kind: errs.ErrDenied, Err: err, Hints: []string{hint}}
}

// pin reads the program at a path in the container whose root directory is the descriptor root. read are the programs
// that were read before; of one with the same inode it takes the digest, and else that of the cache, if it has one.
func pin(root int, path string, read []pinned, cache Cache) (p pinned, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, path, &how)
	if err != nil {
		return p, err
	}
	defer unix.Close(fd)
	at := time.Now()
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return p, err
	}
	if !st.IsRegular() { // opening a device for reading may have effects
		return p, errs.New(verifying, path, errs.ErrInvalid, "it is no regular file")
	}
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	real, err := os.Readlink(self)
	if err != nil {
		return p, err
	}
	f, err := os.Open(self)
	if err != nil {
		return p, err
	}
	defer f.Close()
	p = pinned{path: real, dev: st.Dev, ino: st.Ino, names: uint64(st.Nlink)}
	if i := slices.IndexFunc(read, func(other pinned) bool { return other.dev == p.dev && other.ino == p.ino }); i >= 0 {
		p.digest = read[i].digest
		return p, nil
	}
	if p.digest = cache.get(real, &st); p.digest != "" {
		return p, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return p, err
	}
	p.digest = hex.EncodeToString(h.Sum(nil))
	after, err := vfs.Lstat(fd, "")
	if err != nil {
		return p, err
	}
	cache.put(real, p.digest, at, &st, &after)
	return p, nil
}
