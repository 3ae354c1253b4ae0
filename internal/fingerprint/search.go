package fingerprint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// A Hit is content of a labelled file that a search found in another text.
type Hit struct {
	Source Source
	// Line is the line of the file that was found, from 1, or 0 if a part of the file was found that is no line.
	Line int
	// How is the encoding in which it was found, such as "base64", or "" for none.
	How string
	// id is equal for two hits of the same content.
	id uint64
}

// String returns the hit as text for a message: which content, of which file.
func (h Hit) String() string {
	text := "content of " + h.Source.Name
	if h.Line > 0 {
		text = fmt.Sprintf("line %d of %s", h.Line, h.Source.Name)
	}
	text += ", which is labelled " + h.Source.Kind
	if h.How != "" {
		text += " (" + h.How + ")"
	}
	return text
}

// ErrTooLarge means that a text cannot be searched within the bounds of [Set.Search]: compressed data in it has more
// than 256 MiB.
var ErrTooLarge = errors.New("it has too much compressed data to be searched for labelled content")

// maxHits is how many different hits a search collects. After them it ends.
const maxHits = 256

// A search is the state of one search in a text, with what is in it in encoded form.
type search struct {
	set   *Set
	hits  []Hit
	seen  map[uint64]bool
	left  int64 // bytes of compressed data that may yet be read
	packs int   // pieces of compressed data so far
	err   error
}

// full reports whether the search needs to look at nothing more.
func (s *search) full() bool { return len(s.hits) >= maxHits || s.err != nil }

// chunk is how many bytes of a text are searched at once, and overlap how many of them are searched with the next
// chunk again, so that a value in an encoding is whole in one of the two.
const (
	firstChunk = 64 << 10 // of a text that may be short
	chunk      = 1 << 20
	overlap    = 64 << 10
)

// Find returns the labelled content in text, or nil. Errors: [ErrTooLarge], if nothing was found.
func (s *Set) Find(text []byte) ([]Hit, error) {
	return s.Search(bytes.NewReader(text), int64(len(text)))
}

// Search returns the labelled content in the first size bytes of r, or nil. Cost: about 10 ns for each byte, and more
// for encoded ones. Errors: those of r; [ErrTooLarge], if nothing was found.
func (s *Set) Search(r io.ReaderAt, size int64) ([]Hit, error) {
	if s.Empty() {
		return nil, nil
	}
	one := s.newSearch()
	one.stream(io.NewSectionReader(r, 0, size), "", 0, func(at int64) io.Reader { return io.NewSectionReader(r, at, size-at) })
	return one.result()
}

func (s *Set) newSearch() *search {
	return &search{set: s, seen: map[uint64]bool{}, left: maxPacked}
}

func (s *search) result() ([]Hit, error) {
	if len(s.hits) > 0 {
		slices.SortStableFunc(s.hits, func(a, b Hit) int {
			if (a.Source.Kind == Secret) == (b.Source.Kind == Secret) {
				return 0
			}
			if a.Source.Kind == Secret {
				return -1
			}
			return 1
		})
		return s.hits, nil
	}
	return nil, s.err
}

// stream searches r, chunk by chunk. how names the encodings that were decoded to get r, and depth is their number. from
// returns a reader of the same text from a place in it, to unpack compressed data that begins there; if from is nil,
// such data ends with the chunk.
func (s *search) stream(r io.Reader, how string, depth int, from func(at int64) io.Reader) {
	buf := make([]byte, 0, firstChunk)
	base, again := int64(0), 0 // the place of buf, and how much of it was searched with the chunk before
	for !s.full() {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == nil && cap(buf) < chunk {
			buf = slices.Grow(buf, chunk-len(buf))
			continue
		}
		s.decoded(buf, how, depth)
		s.unpack(buf, again, how, depth, func(at int) io.Reader {
			if from == nil {
				return bytes.NewReader(buf[at:])
			}
			return from(base + int64(at))
		})
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && depth == 0 {
				s.err = err
			}
			return
		}
		copy(buf, buf[len(buf)-overlap:])
		base += int64(len(buf) - overlap)
		buf, again = buf[:overlap], overlap-magicLen
	}
}

// decoded searches text as it is, and after decoding each encoding in it, to the depth maxDepth.
func (s *search) decoded(text []byte, how string, depth int) {
	s.plain(text, how)
	if depth == maxDepth || len(text) < anchorLen {
		return
	}
	if depth > 0 && binaryData(text) {
		return // base64 that was decoded from a letter in the middle of a group
	}
	for _, d := range decoders {
		if s.full() {
			return
		}
		d.decode(text, func(plain []byte) {
			if len(plain) >= minValue && !s.full() {
				inner := join(how, d.name)
				s.decoded(plain, inner, depth+1)
				s.unpack(plain, 0, inner, depth+1, func(at int) io.Reader { return bytes.NewReader(plain[at:]) })
			}
		})
	}
}

// binaryData reports whether at least a third of the bytes are not printable ASCII, a tab or a line end.
func binaryData(text []byte) bool {
	n := 0
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c >= 0x7f {
			n++
		}
	}
	return 3*n >= len(text)
}

// join returns the name of an encoding within another one.
func join(outer, inner string) string {
	if outer == "" {
		return inner
	}
	return outer + ", " + inner
}

// plain searches text as it is.
func (s *search) plain(text []byte, how string) {
	set := s.set
	var anchor, sum uint64
	for i, c := range text {
		anchor = anchor<<8 | uint64(c)
		sum = sum*multiplier + uint64(c) + 1
		if i >= blockLen {
			sum -= leaving * (uint64(text[i-blockLen]) + 1)
		}
		if i >= anchorLen-1 {
			if h := uint32(mix(set.key, anchor) >> 32); set.anchors.has(h) {
				s.values(text, i-anchorLen+1, h, how)
			}
		}
		if i >= blockLen-1 {
			if h := mix(set.key, sum); set.sums.has(uint32(h >> 32)) {
				s.block(h, how)
			}
		}
	}
}

// values adds the values whose first bytes have the hash anchor and that are at this place in text.
func (s *search) values(text []byte, at int, anchor uint32, how string) {
	all := s.set.values
	from := sort.Search(len(all), func(i int) bool { return all[i].anchor >= anchor })
	length, sum := uint32(0), uint64(0)
	for _, v := range all[from:] {
		if v.anchor != anchor || int(v.length) > len(text)-at {
			return // the values of one anchor are sorted by length
		}
		if v.length != length {
			length, sum = v.length, sumOf(s.set.key, text[at:at+int(v.length)])
		}
		if v.sum == sum {
			s.add(Hit{Source: s.set.sources[v.source], Line: int(v.line), How: how, id: sum})
		}
	}
}

// block adds the block with this hash, if the set has one.
func (s *search) block(sum uint64, how string) {
	all := s.set.blocks
	if i := sort.Search(len(all), func(i int) bool { return all[i].sum >= sum }); i < len(all) && all[i].sum == sum {
		s.add(Hit{Source: s.set.sources[all[i].source], How: how, id: sum})
	}
}

func (s *search) add(h Hit) {
	if !s.seen[h.id] && len(s.hits) < maxHits {
		s.seen[h.id] = true
		s.hits = append(s.hits, h)
	}
}

// Without returns the hits of content that other has not, such as the hits in a file's earlier version. It returns
// all if other may be incomplete.
func Without(hits, other []Hit) (rest []Hit) {
	if len(other) >= maxHits {
		return hits
	}
	for _, h := range hits {
		if !slices.ContainsFunc(other, func(o Hit) bool { return o.id == h.id }) {
			rest = append(rest, h)
		}
	}
	return rest
}
