package copier

import (
	"archive/tar"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// partial is the name under which a file that is copied out of or into a sandbox is written first. It lies
// beside the file that it replaces at the end by a rename, so that nobody sees a half-written file.
const partial = ".snapfs-cp-partial"

// errStray means that an archive from a sandbox holds more than the file or directory that was asked for. The
// program tar in a sandbox is a file of the sandbox, so anything may come in its place.
var errStray error = &errs.Error{Kind: errs.ErrDenied, Err: errors.New("the sandbox sent a file outside of what was asked for")}

// unpack writes the files of the tar archive r, which is one file or one directory with everything in it, to
// dir under the name name, and adds their numbers to c. The archive may be hostile: nothing else in dir
// changes, whatever its names and links are.
func unpack(r io.Reader, dir *os.Root, name string, c *Copied) error {
	archive := tar.NewReader(r)
	h, err := archive.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	top := path.Clean(h.Name)
	if top == ".." || strings.Contains(top, "/") {
		return errStray
	}
	if h.Typeflag == tar.TypeDir {
		return unpackDir(archive, dir, name, &place{h: h, top: top}, c)
	}
	if h.Typeflag == tar.TypeLink { // there is nothing yet that it could link to
		return errStray
	}
	if err := unpackFile(archive, dir, name, &place{h: h, shown: name}, c); err != nil {
		return err
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return cmp.Or(err, errStray)
	}
	return nil
}

// A place describes a member of a tar archive from a sandbox while it is unpacked on the host: its header,
// and the paths by which it is found and reported.
type place struct {
	h *tar.Header
	// top is the name that the copied directory has in the archive.
	top string
	// shown is the path of the copy for the user.
	shown string
}

// below returns the path below the copied directory that a name in the archive means; false for any name
// outside of it.
func (p *place) below(name string) (string, bool) {
	name = path.Clean(name)
	if p.top != "." {
		var ok bool
		if name, ok = strings.CutPrefix(name, p.top+"/"); !ok {
			return "", false
		}
	}
	return name, filepath.IsLocal(name)
}

// unpackDir makes the directory name in dir and writes everything in it that follows in the archive. It opens
// the directory, so that no link in the archive leads out of it.
func unpackDir(archive *tar.Reader, dir *os.Root, name string, first *place, c *Copied) error {
	if err := dir.MkdirAll(name, 0o700); err != nil {
		return err
	}
	root, err := dir.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()                           //nolint:errcheck // a descriptor of a directory
	dirs := map[string]*tar.Header{".": first.h} // their times and modes come last
	order := []string{"."}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		at, ok := first.below(h.Name)
		if !ok {
			return errStray
		}
		if h.Typeflag == tar.TypeDir {
			if err := root.MkdirAll(at, 0o700); err != nil {
				return err
			}
			if dirs[at] == nil {
				order = append(order, at)
			}
			dirs[at] = h
			continue
		}
		if err := unpackFile(archive, root, at, &place{h, first.top, path.Join(name, at)}, c); err != nil {
			return err
		}
	}
	for _, at := range slices.Backward(order) {
		h := dirs[at]
		if err := errors.Join(root.Chtimes(at, h.ModTime, h.ModTime), root.Chmod(at, h.FileInfo().Mode().Perm())); err != nil {
			return err
		}
	}
	return nil
}

// unpackFile writes the member p of the archive, which is no directory, to dir under the path at, and adds it
// to c.
func unpackFile(archive *tar.Reader, dir *os.Root, at string, p *place, c *Copied) (err error) {
	switch p.h.Typeflag {
	case tar.TypeReg:
		err = writeFile(dir, archive, at, p.h)
	case tar.TypeSymlink:
		err = replace(dir, at, func(part string) error { return dir.Symlink(p.h.Linkname, part) })
	case tar.TypeLink:
		to, ok := p.below(p.h.Linkname)
		if !ok {
			return errStray
		}
		err = replace(dir, at, func(part string) error { return dir.Link(to, part) })
	default:
		c.Skipped = append(c.Skipped, p.shown)
		return nil
	}
	if err == nil {
		c.Files++
		c.Bytes += p.h.Size
	}
	return err
}

// writeFile writes a regular file of an archive, whose header is h and whose content is r, to dir under the path at.
func writeFile(dir *os.Root, r io.Reader, at string, h *tar.Header) error {
	return replace(dir, at, func(part string) error {
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
