package files

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// attributed opens the file or directory at path, and returns a path in /proc that leads to exactly this
// file, for calls on extended attributes. The caller closes f. op is named in errors.
func (r *Root) attributed(op, path string) (f *os.File, at string, err error) {
	if err := check(op, path); err != nil {
		return nil, "", err
	}
	f, err = r.open(path, unix.O_PATH)
	if err != nil {
		return nil, "", failure(op, path, err)
	}
	i, err := infoOf(f, "x")
	if err == nil && i.Type != File && i.Type != Directory {
		err = errs.New(op, path, errs.ErrInvalid, "a "+i.Type+" has no attributes")
	}
	if err != nil {
		f.Close()
		return nil, "", failure(op, path, err)
	}
	// The calls for descriptors refuse one with O_PATH, and to open a file for reading needs a right of its own.
	return f, "/proc/self/fd/" + strconv.Itoa(int(f.Fd())), nil
}

// Attributes returns those extended attributes of each file whose names begin with prefix. paths are inside
// the root directory. See [Attributer].
func (r *Root) Attributes(prefix string, paths []string) ([]map[string]string, error) {
	if err := checkAttributes(prefix, nil); err != nil {
		return nil, err
	}
	if len(paths) > maxList {
		return nil, errs.New("reading attributes", "", errs.ErrInvalid, "too many files")
	}
	all := make([]map[string]string, len(paths))
	for i, p := range paths {
		f, at, err := r.attributed("reading attributes", p)
		if err != nil {
			continue
		}
		all[i] = attributesAt(at, prefix)
		f.Close()
	}
	return all, nil
}

func attributesAt(at, prefix string) map[string]string {
	list := make([]byte, 64<<10) // the kernel's bound
	n, err := unix.Listxattr(at, list)
	if err != nil || n == 0 {
		return nil
	}
	var values map[string]string
	buf := make([]byte, maxAttribute)
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		short, ok := strings.CutPrefix(name, prefix)
		if !ok || short == "" || len(values) == maxAttributes {
			continue
		}
		if n, err := unix.Getxattr(at, name, buf); err == nil {
			if values == nil {
				values = map[string]string{}
			}
			values[short] = string(buf[:n])
		}
	}
	return values
}

// SetAttributes sets extended attributes of the file at path; prefix is added to their names. See
// [Attributer].
func (r *Root) SetAttributes(prefix, path string, values map[string]string) error {
	const op = "setting attributes"
	if err := checkAttributes(prefix, values); err != nil {
		return err
	}
	f, at, err := r.attributed(op, path)
	if err != nil {
		return err
	}
	defer f.Close()
	for name, value := range values {
		if err := unix.Setxattr(at, prefix+name, []byte(value), 0); err != nil {
			return failure(op, path, err)
		}
	}
	return nil
}
