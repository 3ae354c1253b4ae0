package copier

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// partial is the name under which a file that is copied out of or into a sandbox is written first. It lies
// beside the file that it replaces at the end by a rename, so that nobody sees a half-written file.
const partial = ".snapfs-cp-partial"

// unpack writes the files of the tar archive r below dir, and adds their numbers to c. It replaces the first
// element of their paths by name.
func unpack(r io.Reader, dir *os.Root, name string, c *Copied) error {
	archive := tar.NewReader(r)
	var dirs []*tar.Header // their times and modes come last
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		h.Name = renamed(h.Name, name)
		switch h.Typeflag {
		case tar.TypeDir:
			if err := dir.MkdirAll(h.Name, 0o700); err != nil {
				return err
			}
			dirs = append(dirs, h)
			continue
		case tar.TypeReg:
			err = writeFile(dir, archive, h)
		case tar.TypeSymlink:
			err = replace(dir, h.Name, func(part string) error { return dir.Symlink(h.Linkname, part) })
		case tar.TypeLink:
			err = replace(dir, h.Name, func(part string) error { return dir.Link(renamed(h.Linkname, name), part) })
		default:
			c.Skipped = append(c.Skipped, h.Name)
			continue
		}
		if err != nil {
			return err
		}
		c.Files++
		c.Bytes += h.Size
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		h := dirs[i]
		if err := errors.Join(dir.Chtimes(h.Name, h.ModTime, h.ModTime), dir.Chmod(h.Name, h.FileInfo().Mode().Perm())); err != nil {
			return err
		}
	}
	return nil
}

// renamed returns member, the path of a file in a tar archive, with its first element replaced by name,
// because the copy gets that name.
func renamed(member, name string) string {
	_, rest, _ := strings.Cut(path.Clean(member), "/")
	return path.Join(name, rest)
}

func writeFile(dir *os.Root, r io.Reader, h *tar.Header) error {
	return replace(dir, h.Name, func(part string) error {
		f, err := dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		err = errors.Join(err, f.Chmod(h.FileInfo().Mode().Perm()), f.Close())
		if err == nil {
			err = dir.Chtimes(part, h.ModTime, h.ModTime)
		}
		return err
	})
}

// replace creates a file and puts it in the place of the file name in dir. It calls make to create the file
// beside name, under the name part, then renames it to name. After an error name has its old content.
func replace(dir *os.Root, name string, make func(part string) error) error {
	part := path.Join(path.Dir(name), partial)
	err := make(part)
	if err == nil {
		err = dir.Rename(part, name)
	}
	if err != nil {
		_ = dir.Remove(part) // it may not exist
	}
	return err
}

// pack writes the host's file or directory from as a tar archive to w, under the path name, and adds the
// numbers of files to c.
func pack(w io.Writer, from, name string, c *Copied) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(from, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		member := path.Join(name, filepath.ToSlash(rel))
		link := ""
		switch t := info.Mode().Type(); t {
		case fs.ModeSymlink:
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		case 0, fs.ModeDir:
		default:
			c.Skipped = append(c.Skipped, member)
			return nil
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name, h.Mode = member, h.Mode&0o777
		if err := archive.WriteHeader(h); err != nil || info.IsDir() {
			return err
		}
		c.Files++
		if info.Mode().IsRegular() {
			c.Bytes += info.Size()
			return packFile(archive, file)
		}
		return nil
	})
	return errors.Join(err, archive.Close())
}

func packFile(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// failure returns err, an error of copying files into or out of a sandbox, with the operation op and the file
// that it concerns, for the user; nil if err is nil.
func failure(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return errs.With(op, file, err)
}
