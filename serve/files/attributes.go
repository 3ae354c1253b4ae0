package files

import (
	"errors"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// The operations on extended attributes.
const (
	opAttributes    = "attributes"
	opSetAttributes = "setattributes"
)

// Bounds of extended attributes.
const (
	maxAttributes = 256
	maxAttribute  = 4096 // bytes of a value; a longer one is left out
)

// An Attributer reads and writes the extended attributes of files. prefix is the beginning of their names, "user." and
// more; names in maps are without it. Symbolic links are followed. Root and [Session] are Attributers.
type Attributer interface {
	// Attributes returns the attributes of each file, at most MaxList of them; nil for one that cannot be read, is no
	// file or directory, or lies on a filesystem without attributes.
	Attributes(prefix string, paths []string) ([]map[string]string, error)
	// SetAttributes adds attributes to a file, or replaces those that it has. After an error some may be set. Errors:
	// those of [Tree]; errs.ErrNotSupported (the filesystem); errs.ErrNoSpace.
	SetAttributes(prefix, path string, values map[string]string) error
}

var (
	_ Attributer = (*Root)(nil)
	_ Attributer = (*Session)(nil)
)

// checkAttributes returns errs.ErrInvalid for names that no attribute of a user can have.
func checkAttributes(prefix string, values map[string]string) error {
	const op = "setting attributes"
	if !strings.HasPrefix(prefix, "user.") || len(values) > maxAttributes {
		return errs.New(op, "", errs.ErrInvalid, "an attribute's name begins with user., and a file has at most 256")
	}
	for name, value := range values {
		if name == "" || len(prefix)+len(name) > 255 || strings.ContainsRune(name, 0) || len(value) > maxAttribute {
			return errs.New(op, "", errs.ErrInvalid, "the name or the value of an attribute is too long")
		}
	}
	return nil
}

// Attributes is that of [Attributer].
func (s *Session) Attributes(prefix string, paths []string) ([]map[string]string, error) {
	if err := checkAttributes(prefix, nil); err != nil || len(paths) == 0 {
		return nil, err
	}
	q := message{Op: opAttributes, To: []byte(prefix)}
	for _, p := range paths {
		q.Paths = append(q.Paths, []byte(p))
	}
	reply, err := s.call(q, nil)
	if err == nil && len(reply.Values) != len(paths) {
		err = errs.With("reading files", "", errProtocol)
	}
	return reply.Values, err
}

// SetAttributes is that of [Attributer].
func (s *Session) SetAttributes(prefix, path string, values map[string]string) error {
	if err := errors.Join(check("setting attributes", path), checkAttributes(prefix, values)); err != nil || len(values) == 0 {
		return err
	}
	_, err := s.call(message{Op: opSetAttributes, Path: []byte(path), To: []byte(prefix), Values: []map[string]string{values}}, nil)
	return err
}

// attributes carries out opAttributes and opSetAttributes.
func (s *server) attributes(q message) (reply message, err error) {
	a, ok := s.tree.(Attributer)
	if !ok {
		return reply, errs.New("reading files", "", errs.ErrNotSupported, "the tree has no attributes")
	}
	if q.Op == opSetAttributes {
		if len(q.Values) != 1 {
			return reply, errs.New("setting attributes", "", errs.ErrInvalid, "the request has no values")
		}
		return reply, a.SetAttributes(string(q.To), string(q.Path), q.Values[0])
	}
	paths := make([]string, len(q.Paths))
	for i, p := range q.Paths {
		paths[i] = string(p)
	}
	reply.Values, err = a.Attributes(string(q.To), paths)
	return reply, err
}
