package files

import (
	"errors"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// The names of the requests about extended attributes that a [Session], which gives a server access to a
// sandbox's files, sends to its process in the sandbox.
const (
	opAttributes    = "attributes"
	opSetAttributes = "setattributes"
)

// Bounds of the extended attributes that a client may read or set on one file: their number, and the bytes of
// a value. A reply leaves out what exceeds them; a request to set more is invalid.
const (
	maxAttributes = 256
	maxAttribute  = 4096 // bytes of a value; a longer one is left out
)

// An Attributer reads and writes the extended attributes of a sandbox's files, in addition to [Tree]. prefix
// begins their names: "user." and more; the names in maps are without it. Symbolic links are followed. Root
// and [Session] are Attributers.
type Attributer interface {
	// Attributes returns the extended attributes of each of at most maxList files, by name without prefix. It
	// returns nil for a file that cannot be read, is no file or directory, or lies on a filesystem without
	// attributes.
	Attributes(prefix string, paths []string) ([]map[string]string, error)
	// SetAttributes adds extended attributes to a file, or replaces those that it has. After an error some
	// may be set. Errors: those of [Tree]; errs.ErrNotSupported (the filesystem); errs.ErrNoSpace.
	SetAttributes(prefix, path string, values map[string]string) error
}

var (
	_ Attributer = (*Root)(nil)
	_ Attributer = (*Session)(nil)
)

// checkAttributes returns errs.ErrInvalid if prefix, a name in values or a value is one that no extended
// attribute of an ordinary user can have, or if there are too many.
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

// Attributes returns the extended attributes of each file whose names begin with prefix. See [Attributer].
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

// SetAttributes sets extended attributes of the file at path in the sandbox; prefix is added to their names.
// See [Attributer].
func (s *Session) SetAttributes(prefix, path string, values map[string]string) error {
	if err := errors.Join(check("setting attributes", path), checkAttributes(prefix, values)); err != nil || len(values) == 0 {
		return err
	}
	_, err := s.call(message{Op: opSetAttributes, Path: []byte(path), To: []byte(prefix), Values: []map[string]string{values}}, nil)
	return err
}

// attributes carries out a request of a [Session] to read or set extended attributes of files, in the process
// in the sandbox.
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
