package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // the format's hash
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// An ID is the name of a git object: the SHA-1 of its kind, size and content.
type ID [20]byte

// String returns the git object's name as 40 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Short returns the first seven hexadecimal digits of the git object's name, for display.
func (id ID) Short() string { return id.String()[:7] }

// Zero reports whether the ID is all zero, which names no object.
func (id ID) Zero() bool { return id == ID{} }

// ParseID parses the name of a git object: 40 lower-case hexadecimal digits that are not all zero.
func ParseID(s string) (id ID, ok bool) {
	if len(s) != 40 || strings.ToLower(s) != s {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil && !id.Zero()
}

// A Kind is the kind of a git object: commit, tree, blob or tag. Its value is the number that pack files use
// for the kind.
type Kind byte

// The kinds of git objects, with the numbers that pack files use for them.
const (
	Commit Kind = 1 + iota
	Tree
	Blob
	Tag
)

var kindNames = [...]string{Commit: "commit", Tree: "tree", Blob: "blob", Tag: "tag"}

// String returns the name of the git object's kind as git writes it, such as "commit".
func (k Kind) String() string { return kindNames[k] }

func kindOf(name string) Kind {
	for k, n := range kindNames {
		if n == name && n != "" {
			return Kind(k)
		}
	}
	return 0
}

// An Object is a git object: its kind and its content without the header.
type Object struct {
	Kind Kind
	Data []byte
}

// ID returns the name of the git object, the SHA-1 of its kind, size and content.
func (o Object) ID() ID {
	h := sha1.New() //nolint:gosec // the format's hash
	fmt.Fprintf(h, "%s %d\x00", o.Kind, len(o.Data))
	h.Write(o.Data)
	return ID(h.Sum(nil))
}

// ErrDamaged means that the content of an object does not match its name, or that an object or a file of a
// repository breaks its format.
var ErrDamaged = errors.New("damaged")

// ErrTooLarge means that a repository exceeds a limit of this package, such as the largest size of an object
// or the largest number of refs.
var ErrTooLarge = errors.New("too large")

// A store is an object directory of a repository (.git/objects): loose objects, packs, and the further stores
// that its file info/alternates names.
type store struct {
	dir        Dir
	limit      int64
	packs      []*pack
	listed     bool
	alternates []*store
	own        *os.File // closed with the store
}

func (s *store) close() {
	for _, p := range s.packs {
		p.close()
	}
	for _, a := range s.alternates {
		a.close()
	}
	if s.own != nil {
		s.own.Close()
	}
}

// Has reports whether the repository has the object id, without reading the object.
func (r *Repo) Has(id ID) (bool, error) { return r.objects.has(id) }

// Object reads the object id and compares the hash of its content with the id. kind is the expected kind; 0
// accepts any. Errors: fs.ErrNotExist; ErrDamaged, also for another kind; ErrTooLarge.
func (r *Repo) Object(id ID, kind Kind) (Object, error) { return r.objects.readKind(id, kind) }

func (s *store) readKind(id ID, kind Kind) (Object, error) {
	o, err := s.read(id)
	switch {
	case err != nil:
		return o, fmt.Errorf("object %s: %w", id, err)
	case o.ID() != id:
		return o, fmt.Errorf("object %s: its content has another hash: %w", id, ErrDamaged)
	case kind != 0 && o.Kind != kind:
		return o, fmt.Errorf("object %s is a %s, not a %s: %w", id, o.Kind, kind, ErrDamaged)
	}
	return o, nil
}

func loosePath(id ID) string { s := id.String(); return s[:2] + "/" + s[2:] }

func (s *store) has(id ID) (bool, error) {
	packs, err := s.allPacks()
	if err != nil {
		return false, err
	}
	for _, p := range packs {
		if _, found, err := p.find(id); found || err != nil {
			return found, err
		}
	}
	if st, err := s.dir.Stat(loosePath(id)); err == nil && st.IsRegular() {
		return true, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, a := range s.alternates {
		if found, err := a.has(id); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func (s *store) read(id ID) (Object, error) {
	packs, err := s.allPacks()
	if err != nil {
		return Object{}, err
	}
	for _, p := range packs {
		at, found, err := p.find(id)
		if err != nil {
			return Object{}, err
		}
		if found {
			return p.read(at)
		}
	}
	o, err := s.readLoose(id)
	if errors.Is(err, fs.ErrNotExist) {
		for _, a := range s.alternates {
			if o, err := a.read(id); !errors.Is(err, fs.ErrNotExist) {
				return o, err
			}
		}
	}
	return o, err
}

// readLoose reads an object from a file of its own under .git/objects, which holds a header and the content,
// compressed by zlib. It does not compare the hash with id.
func (s *store) readLoose(id ID) (Object, error) {
	f, err := s.dir.Open(loosePath(id))
	if err != nil {
		return Object{}, err
	}
	defer f.Close()
	z, err := zlib.NewReader(bufio.NewReader(f))
	if err != nil {
		return Object{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	in := bufio.NewReaderSize(z, 64)
	header, err := in.ReadSlice(0)
	if err != nil {
		return Object{}, fmt.Errorf("header: %w", ErrDamaged)
	}
	name, digits, _ := strings.Cut(string(header[:len(header)-1]), " ")
	size, err := strconv.ParseInt(digits, 10, 64)
	kind := kindOf(name)
	if err != nil || kind == 0 || size < 0 {
		return Object{}, fmt.Errorf("header: %w", ErrDamaged)
	}
	data, err := readExactly(in, size, s.limit)
	return Object{kind, data}, err
}

// readExactly reads size bytes, of at most limit, and requires that the input ends after them. The memory
// used grows with the data that arrives, not with the claimed size, so that a false size costs nothing.
func readExactly(in io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", size, limit, ErrTooLarge)
	}
	var buf bytes.Buffer
	buf.Grow(int(min(size+bytes.MinRead, 1<<20)))
	n, err := buf.ReadFrom(io.LimitReader(in, size+1))
	if err != nil || n != size {
		return nil, fmt.Errorf("%d bytes instead of %d: %w", n, size, ErrDamaged)
	}
	return buf.Bytes(), nil
}
