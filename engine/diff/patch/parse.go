package patch

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A script is a patch that has been read: where everything is in it.
type script struct {
	text    io.ReaderAt
	size    int64
	records []record
	// bodies are the offsets of the hunks, or of the binary content, of each file
	// in git's part; 0 where there is none. extents are those of records.
	bodies  []int64
	extents map[string][]stretch
}

// A stretch is an extent, and where in the patch its content is.
type stretch struct {
	diff.Extent
	at int64
}

// malformed says that a text is no patch that Write has written.
func malformed(line int, why string, args ...any) error {
	return &snapshot.Error{
		Op: "reading the patch", Kind: snapshot.ErrCorrupt,
		Err: fmt.Errorf("line %d: %s", line, fmt.Sprintf(why, args...)),
	}
}

// spool makes what is read readable at any place: a file is as it is, of
// anything else a copy is made that has no name.
func spool(ctx context.Context, r io.Reader) (text io.ReaderAt, size int64, done func(), err error) {
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		if at, serr := f.Seek(0, io.SeekCurrent); err == nil && serr == nil && info.Mode().IsRegular() {
			return io.NewSectionReader(f, at, info.Size()-at), info.Size() - at, func() {}, nil
		}
	}
	f, err := os.CreateTemp("", ".snapfs-patch-")
	if err != nil {
		return nil, 0, nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		size, err = io.Copy(f, &patient{ctx, r})
	}
	if err != nil {
		return nil, 0, nil, errors.Join(err, f.Close())
	}
	return f, size, func() { f.Close() }, nil
}

// read finds everything in a patch, and takes nothing but what Write writes.
func read(ctx context.Context, text io.ReaderAt, size int64) (*script, error) {
	p := parser{
		script: &script{text: text, size: size, bodies: []int64{0}, extents: map[string][]stretch{}},
		in:     bufio.NewReaderSize(&patient{ctx, io.NewSectionReader(text, 0, size)}, 64<<10),
	}
	for {
		line, err := p.next()
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if err := p.take(line); err != nil {
			return nil, err
		}
	}
	switch {
	case !p.opened:
		return nil, &snapshot.Error{Op: "reading the patch", Kind: snapshot.ErrNotSupported, Err: errors.New("snapfs has not written it, or not all of it is there: git apply takes others")}
	case !p.closed:
		return nil, malformed(p.number, "the patch ends before its end")
	}
	return p.script, nil
}

type parser struct {
	*script
	in             *bufio.Reader
	at             int64 // of the line that was read last
	end            int64 // behind it
	from           int64 // where snapfs's part begins
	number         int
	opened, closed bool
	missing        int  // extents of the last record
	inExtent       bool // its lines come
	bodyless       bool // the last file of git's part has no body yet
}

// recordMax bounds a record, in bytes: whoever made the patch may be hostile.
const recordMax = 16 << 20

// next reads a line, of a long one that is no record the beginning only.
func (p *parser) next() ([]byte, error) {
	p.at, p.number = p.end, p.number+1
	line, err := p.in.ReadSlice('\n')
	p.end += int64(len(line))
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	line = bytes.Clone(line)
	whole := bytes.HasPrefix(line, []byte(mark))
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = p.in.ReadSlice('\n')
		p.end += int64(len(more))
		if whole {
			line = append(line, more...)
		}
		if len(line) > recordMax {
			return nil, malformed(p.number, "a record of more than %d bytes", recordMax)
		}
	}
	return line, err
}

func (p *parser) take(line []byte) error {
	text := string(bytes.TrimSuffix(line, []byte{'\n'}))
	own := strings.HasPrefix(text, mark)
	switch {
	case p.inExtent:
		if text == rest {
			p.inExtent = false
		} else if !strings.HasPrefix(text, packed) {
			return malformed(p.number, "content ends before its end")
		}
	case own && text == opening:
		if p.opened {
			return &snapshot.Error{
				Op: "reading the patch", Kind: snapshot.ErrNotSupported,
				Err: errors.New("it is of several directories: make one of each, by naming paths to snapfs diff"),
			}
		}
		p.opened, p.from = true, p.at
	case own && (!p.opened || p.closed):
		return malformed(p.number, "of another version of snapfs, or out of place")
	case own:
		return p.own(text)
	case p.opened && !p.closed:
		return malformed(p.number, "no record")
	case p.opened:
		return nil // whatever follows is nobody's
	case strings.HasPrefix(text, "diff --git "):
		p.bodies, p.bodyless = append(p.bodies, 0), true
	case p.bodyless && (strings.HasPrefix(text, "@@ ") || text == "GIT binary patch"):
		p.bodies[len(p.bodies)-1], p.bodyless = p.at, false
	}
	return nil
}

// own takes a line of snapfs's part.
func (p *parser) own(text string) error {
	if count, ok := strings.CutPrefix(text, closing); ok {
		p.closed = true
		hash := sha256.New()
		if _, err := io.Copy(hash, io.NewSectionReader(p.text, p.from, p.at-p.from)); err != nil {
			return failed("", err)
		}
		if want := fmt.Sprintf("%d %x", len(p.records), hash.Sum(nil)); count != want || p.missing > 0 {
			return malformed(p.number, "what is above it was changed")
		}
		return nil
	}
	if numbers, ok := strings.CutPrefix(text, extent); ok {
		return p.extent(numbers)
	}
	var r record
	d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(text, mark)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return malformed(p.number, "%v", err)
	}
	if why := p.check(&r); why != "" {
		return malformed(p.number, "%s", why)
	}
	p.records, p.missing = append(p.records, r), r.Extents
	return nil
}

func (p *parser) extent(numbers string) error {
	var e diff.Extent
	if n, err := fmt.Sscanf(numbers, "%d %d", &e.Offset, &e.Length); n != 2 || err != nil || p.missing == 0 {
		return malformed(p.number, "an extent that belongs to nothing")
	}
	r := &p.records[len(p.records)-1]
	if e.Offset < 0 || e.Length <= 0 || e.Offset > r.New.Size-e.Length {
		return malformed(p.number, "an extent beyond the file's end")
	}
	p.extents[string(r.Path)] = append(p.extents[string(r.Path)], stretch{e, p.end})
	p.missing--
	p.inExtent = true
	return nil
}

// check says what is wrong with a record, or "".
func (p *parser) check(r *record) string {
	switch {
	case p.missing > 0:
		return "extents are missing"
	case !valid(string(r.Path)), r.From != "" && !valid(string(r.From)):
		return fmt.Sprintf("%q is no path beneath the directory", string(r.Path))
	case r.Old == nil && r.New == nil:
		if _, err := r.Time.time(); err != nil || r.From != "" || r.Git != 0 || r.Extents != 0 {
			return "a record that says nothing"
		}
		return ""
	case r.Git < 0 || r.Git >= len(p.bodies) || r.Extents < 0 || r.Git > 0 && r.Extents > 0:
		return "its content is nowhere"
	case r.Path == "." && (!r.Old.is(typeDir) || !r.New.is(typeDir)):
		return "the directory itself cannot come or go"
	case (r.Git > 0 || r.Extents > 0) && !r.New.is(typeFile):
		return "content for what is no file"
	}
	for i := len(p.records) - 1; i >= 0; i-- {
		if last := &p.records[i]; last.Old != nil || last.New != nil {
			if !diff.Less(string(last.Path), string(r.Path)) {
				return "not in order"
			}
			break
		}
	}
	for _, f := range []*facts{r.Old, r.New} {
		if why := f.check(); why != "" {
			return why
		}
	}
	return ""
}

func (f *facts) check() string {
	if f == nil {
		return ""
	}
	if _, err := f.MTime.time(); err != nil {
		return err.Error()
	}
	switch f.Mode & typeMask {
	case typeFile, typeDir, typeFifo, typeSocket, typeChar, typeBlock:
	case typeLink:
		if f.Target == "" || strings.ContainsRune(string(f.Target), 0) {
			return "a symbolic link to nothing"
		}
	default:
		return "of no type"
	}
	switch {
	case f.Mode > 0o177777 || f.Size < 0:
		return "of no mode or size"
	case f.LinkOf != "" && (!valid(string(f.LinkOf)) || f.is(typeDir)):
		return "a link of what cannot be linked"
	}
	return ""
}

// valid reports whether a path stays beneath the directory.
func valid(path string) bool {
	return fs.ValidPath(strings.ToValidUTF8(path, "?")) && !strings.ContainsRune(path, 0)
}
