//go:build linux

package mounts

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// The whiteouts of hidden names are the same at nearly every start. To make some hundreds of them in a tmpfs took
// longer than all other mounts together. So an EROFS image, a file that Linux mounts since 6.12, has them ready. The
// image is read-only, so containers that mount one image share nothing that they could change. The attributes of
// directories change often; the tmpfs above the image has them.

// maxImages is the greatest number of images in their directory. Few are in use: snapfs makes another one when a user's
// home directory appears, or when a secret is written where there was none.
const maxImages = 64

// mountWhiteouts mounts an image with whiteouts for the absent names of hidden. It makes the image in the directory
// images unless it is there and intact. It returns nil where this is not possible: for an unprivileged caller, and on
// kernels that cannot mount a file. The caller closes the detached mount. Cost: 0.2 ms, 20 ms for a new image.
func mountWhiteouts(images string, hidden []Hidden) *os.File {
	if images == "" || os.Geteuid() != 0 {
		return nil
	}
	file := filepath.Join(images, imageName(hidden))
	size, whole, err := checkImage(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && size > 0 && !whole {
		if err = makeImage(file, hidden); err == nil {
			_, whole, err = checkImage(file)
		}
	}
	if err != nil || !whole {
		return nil
	}
	m, err := mountImage(file)
	if err != nil {
		return nil
	}
	return m
}

// checkImage returns the size of an image's file, and whether it ends with the checksum (CRC-32) with which it was
// written. In a damaged image names may be missing, which would then be visible in the container. It reads the file
// piece by piece, since its memory would cost more than the checksum.
func checkImage(file string) (size int64, whole bool, err error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, false, err
	}
	end := st.Size - crc32.Size
	if end <= 0 {
		return st.Size, false, nil
	}
	piece, sum := make([]byte, 16<<10), uint32(0)
	for at := int64(0); at < end; {
		n, err := unix.Pread(fd, piece[:min(int64(len(piece)), end-at)], at)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return st.Size, false, err
		}
		sum, at = crc32.Update(sum, crc32.IEEETable, piece[:n]), at+int64(n)
	}
	n, err := unix.Pread(fd, piece[:crc32.Size], end)
	return st.Size, n == crc32.Size && binary.LittleEndian.Uint32(piece) == sum, err
}

// imageName returns the file name of the image for hidden. It differs between kernels, since they differ in which
// images they can mount.
func imageName(hidden []Hidden) string {
	var host unix.Utsname
	_ = unix.Uname(&host)                                      // cannot fail
	return keyOf(hidden, append(host.Release[:], "CRC-32"...)) // earlier versions of snapfs wrote another checksum
}

// keyOf returns a file name that is different for each list of directories and absent names, and each salt.
func keyOf(hidden []Hidden, salt []byte) string {
	text := append(make([]byte, 0, 16<<10), salt...)
	for _, h := range hidden {
		text = append(append(text, h.Dir...), 0)
		for _, name := range h.Absent {
			text = append(append(text, name...), 0)
		}
		text = append(text, '/', 0)
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:25]))
}

// mountImage mounts the image file, an EROFS filesystem, detached.
func mountImage(file string) (*os.File, error) {
	c, err := mount.Fsopen("erofs")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Set("source", file); err != nil {
		return nil, err
	}
	return c.Mount(plainMount | unix.MOUNT_ATTR_RDONLY)
}

// makeImage writes the image for hidden, and its checksum, to file, or an empty file if this kernel cannot use it.
// Afterwards the file has either all of its bytes or does not exist, also after a power loss. It removes the oldest of
// too many images.
func makeImage(file string, hidden []Hidden) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	pruneImages(dir)
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after the rename there is nothing to remove
	defer f.Close()
	image := whiteoutImage(hidden)
	if _, err := f.Write(binary.LittleEndian.AppendUint32(image, crc32.ChecksumIEEE(image))); err != nil {
		return err
	}
	if !nestable(f.Name()) {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// nestable reports whether the kernel can mount the image file as a layer of an overlay that is itself a layer of
// another one. Some releases of Linux count the image as one more filesystem of the stack, whose depth is limited, so
// that programs in a container could mount no overlay.
func nestable(file string) bool {
	lower, err := mountImage(file)
	if err != nil {
		return false
	}
	defer lower.Close()
	l := &Layers{}
	defer func() { CloseInBackground(l.mounts...) }()
	name := vfs.FDPath(lower)
	for range 2 {
		if name, err = l.wrap(name, false); err != nil {
			return false
		}
	}
	return true
}

// pruneImages removes the oldest images of dir if there are too many. A container keeps the image that it has mounted.
func pruneImages(dir string) {
	list, err := os.ReadDir(dir)
	if err != nil || len(list) < maxImages {
		return
	}
	age := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0 // removed by another program
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for _, e := range list[:len(list)-maxImages/2] {
		_ = os.Remove(filepath.Join(dir, e.Name())) // the next call tries again
	}
}
