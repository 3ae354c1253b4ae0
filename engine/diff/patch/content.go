package patch

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/kernel"
)

var errBroken = errors.New("the patch's own content is damaged")

// at reads the patch from an offset on.
func (s *script) at(ctx context.Context, offset int64) *bufio.Reader {
	return bufio.NewReaderSize(&patient{ctx, io.NewSectionReader(s.text, offset, s.size-offset)}, 64<<10)
}

// build writes the new content of a file into dst, which is empty. base is the old
// content, nil for none. The content is checked.
func (s *script) build(ctx context.Context, r *record, base, dst *os.File) error {
	if r.Empty {
		base = nil
	}
	if err := s.fill(ctx, r, base, dst); err != nil {
		return err
	}
	if r.New.ID == "" {
		return nil
	}
	id, err := contentID(ctx, dst, r.New.ID)
	if err == nil && id != r.New.ID {
		err = errBroken
	}
	return err
}

func (s *script) fill(ctx context.Context, r *record, base, dst *os.File) error {
	body := s.bodies[r.Git]
	if body == 0 {
		if base != nil {
			if _, err := kernel.CopyFile(dst, base); err != nil {
				return err
			}
		}
		if r.Git == 0 && r.New.ID != "" {
			if err := dst.Truncate(r.New.Size); err != nil {
				return err
			}
		}
		for _, e := range s.extents[string(r.Path)] {
			if err := s.write(ctx, e, dst); err != nil {
				return err
			}
		}
		return nil
	}
	in := s.at(ctx, body)
	if line, err := in.Peek(2); err == nil && string(line) == "@@" {
		return patchText(in, base, dst)
	}
	return unpack(in, dst, r.New.Size)
}

// write puts an extent in its place; what is zeros only is made a hole.
func (s *script) write(ctx context.Context, e stretch, dst *os.File) error {
	content, err := zlib.NewReader(&unbase85{in: s.at(ctx, e.at), prefix: packed})
	if err != nil {
		return errBroken
	}
	n, err := copySparse(dst, io.LimitReader(content, e.Length+1), e.Offset, true)
	if err == nil && n != e.Length {
		err = errBroken
	}
	return err
}

// unpack writes a file that git has as binary, of a size that is known.
func unpack(in *bufio.Reader, dst *os.File, size int64) error {
	for _, want := range []string{"GIT binary patch\n", fmt.Sprintf("literal %d\n", size)} {
		if line, err := in.ReadString('\n'); err != nil || line != want {
			return errBroken
		}
	}
	content, err := zlib.NewReader(&unbase85{in: in})
	if err != nil {
		return errBroken
	}
	n, err := copySparse(dst, io.LimitReader(content, size+1), 0, false)
	if err == nil && n != size {
		err = errBroken
	}
	return err
}

// copySparse writes content at an offset, without the zeros that are there anyway:
// what was a hole stays one. Not beneath: it is the whole file.
func copySparse(dst *os.File, content io.Reader, at int64, beneath bool) (n int64, err error) {
	const block = 4 << 10
	buf, old := make([]byte, block), make([]byte, block)
	for {
		got, err := io.ReadFull(content, buf)
		data := buf[:got]
		if got > 0 && (!zeros(data) || beneath && !zerosAt(dst, old[:got], at+n)) {
			if _, err := dst.WriteAt(data, at+n); err != nil {
				return n, err
			}
		}
		n += int64(got)
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			if beneath {
				return n, nil
			}
			return n, dst.Truncate(n)
		default:
			return n, errBroken
		}
	}
}

func zeros(data []byte) bool { return len(bytes.TrimLeft(data, "\x00")) == 0 }

func zerosAt(f *os.File, buf []byte, at int64) bool {
	n, err := f.ReadAt(buf, at)
	return err == nil && zeros(buf[:n])
}

// unbase85 reads what base85 has written.
type unbase85 struct {
	in     *bufio.Reader
	prefix string
	rest   []byte
	line   [52]byte
}

func (u *unbase85) Read(b []byte) (int, error) {
	if len(u.rest) == 0 {
		line, err := u.in.ReadString('\n')
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), u.prefix)
		if line == "" || !ok {
			return 0, io.EOF
		}
		if err != nil && err != io.EOF {
			return 0, err
		}
		if err := u.decode(line); err != nil {
			return 0, err
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

func (u *unbase85) decode(line string) error {
	size := 0
	switch c := line[0]; {
	case c >= 'A' && c <= 'Z':
		size = int(c-'A') + 1
	case c >= 'a' && c <= 'z':
		size = int(c-'a') + 27
	}
	line = line[1:]
	if size == 0 || len(line) != (size+3)/4*5 {
		return errBroken
	}
	for i := 0; len(line) > 0; i += 4 {
		v := uint64(0)
		for _, c := range []byte(line[:5]) {
			d := strings.IndexByte(digits85, c)
			if d < 0 {
				return errBroken
			}
			v = v*85 + uint64(d)
		}
		if v > 1<<32-1 {
			return errBroken
		}
		u.line[i], u.line[i+1], u.line[i+2], u.line[i+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
		line = line[5:]
	}
	u.rest = u.line[:size]
	return nil
}

// contentID is the identity of a file's content in the form that like has.
func contentID(ctx context.Context, f *os.File, like string) (string, error) {
	if strings.HasPrefix(like, sumPrefix) {
		sum, err := diff.Sum(ctx, f)
		return sumPrefix + hex.EncodeToString(sum[:]), err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := blobHash(info.Size())
	if _, err := io.Copy(h, &patient{ctx, io.NewSectionReader(f, 0, info.Size())}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// blobHash begins git's object id of a file.
func blobHash(size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}
