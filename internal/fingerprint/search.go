package fingerprint

import (
	"bytes"
	"cmp"
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
// than 256 MiB, or is within an encoding or other compressed data and does not end within 32 MiB of that.
var ErrTooLarge = errors.New("it has too much compressed data to be searched for labelled content")

// maxHits is how many different hits a search collects of secrets, and how many of other content. It ends when it has
// so many of each kind that the set has: else much private content would hide a secret behind it.
const maxHits = 256

// A search is the state of one search in a text, with what is in it in encoded form.
type search struct {
	set   *Set
	hits  []Hit
	found tally
	seen  map[uint64]bool
	left  int64 // bytes of compressed data that may yet be read
	packs int   // pieces of compressed data so far
	most  int   // how long a chunk becomes at most
	cut   bool  // the end of the present chunk cut compressed data
	err   error
}

// full reports whether the search needs to look at nothing more.
func (s *search) full() bool {
	return s.err != nil || (s.found.secret >= maxHits || !s.set.secret) && (s.found.other >= maxHits || !s.set.other)
}

// A tally counts hits by kind.
type tally struct{ secret, other int }

// of returns the count for the kind of h.
func (t *tally) of(h Hit) *int {
	if h.Source.Kind == Secret {
		return &t.secret
	}
	return &t.other
}

// chunk is how many bytes of a text are searched at once, and overlap how many of them are searched with the next
// chunk again, so that a value in an encoding is whole in one of the two.
const (
	firstChunk = 64 << 10 // of a text that may be short
	chunk      = 1 << 20
	maxChunk   = 32 << 20 // where compressed data in an encoding goes on behind a chunk
	overlap    = 64 << 10
)

// Find returns the labelled content in text, or nil. Errors: [ErrTooLarge], as of [Set.Search].
func (s *Set) Find(text []byte) ([]Hit, error) {
	return s.Search(bytes.NewReader(text), int64(len(text)))
}

// Search returns the labelled content in the first size bytes of r, or nil. Cost: about 10 ns for each byte, and more
// for encoded ones. Errors: those of r, and [ErrTooLarge]. With an error the result may lack hits; there is no error if
// it has one of a secret, or any one from a set without secrets.
func (s *Set) Search(r io.ReaderAt, size int64) ([]Hit, error) {
	if s.Empty() {
		return nil, nil
	}
	one := s.newSearch()
	one.stream(io.NewSectionReader(r, 0, size), "", 0, func(at int64) io.Reader { return io.NewSectionReader(r, at, size-at) })
	return one.result()
}

func (s *Set) newSearch() *search {
	return &search{set: s, seen: map[uint64]bool{}, left: maxPacked, most: maxChunk}
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
		if s.hits[0].Source.Kind == Secret || !s.set.secret {
			return s.hits, nil
		}
	}
	return s.hits, s.err
}

// stream searches r, chunk by chunk. how is the encoding in which it was found, and depth how many there are. from
// returns a reader of the same text from a place in it, for compressed data that begins there; without it, nil, such
// data is read from a chunk, which grows to maxChunk to have all of it.
func (s *search) stream(r io.Reader, how string, depth int, from func(at int64) io.Reader) {
	buf := make([]byte, 0, firstChunk)
	base, again := int64(0), 0 // the place of buf, and how much of it was searched with the chunk before
	for was := s.cut; !s.full(); {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == nil && cap(buf) < chunk {
			buf = slices.Grow(buf, chunk-len(buf))
			continue
		}
		s.cut = false
		s.decoded(buf, how, depth, err == nil)
		if from == nil {
			s.unpack(buf, 0, how, depth, nil, err == nil)
		} else {
			s.unpack(buf, again, how, depth, func(at int) io.Reader { return from(base + int64(at)) }, false)
		}
		cut := s.cut && err == nil
		s.cut = was
		switch {
		case err != nil:
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && depth == 0 {
				s.err = err
			}
			return
		case cut && cap(buf) < s.most:
			buf = slices.Grow(buf, s.most-len(buf))
			continue
		case cut:
			s.err = ErrTooLarge
			return
		}
		copy(buf, buf[len(buf)-overlap:])
		base += int64(len(buf) - overlap)
		buf, again = buf[:overlap], overlap-magicLen
	}
}

// decoded searches text, and what is in it in an encoding, to the depth maxDepth. more is set if the text goes on behind its
// end, in the next chunk.
func (s *search) decoded(text []byte, how string, depth int, more bool) {
	s.plain(text, how)
	if depth == maxDepth || len(text) < anchorLen {
		return
	}
	if depth > 0 && binaryData(text) {
		return // of base64, decoded from a letter in the middle
	}
	for _, d := range decoders {
		if s.full() {
			return
		}
		d.decode(text, func(plain []byte, from, to int) {
			if len(plain) >= minValue && !s.full() {
				inner := join(how, d.name)
				more := more && to == len(text) && from < to-overlap // else the next chunk has all of it
				s.decoded(plain, inner, depth+1, more)
				s.unpack(plain, 0, inner, depth+1, nil, more)
			}
		})
	}
}

// binaryData reports whether a third of the bytes of a text or more are none of a text.
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
	rest := s.set.values
	from := func(length uint32, sum uint64) bool { // drops the values before these, which many lines may begin like
		i := sort.Search(len(rest), func(i int) bool {
			return cmp.Or(cmp.Compare(rest[i].anchor, anchor), cmp.Compare(rest[i].length, length), cmp.Compare(rest[i].sum, sum)) >= 0
		})
		rest = rest[i:]
		return len(rest) > 0 && rest[0].anchor == anchor
	}
	for more := from(0, 0); more; {
		length := rest[0].length
		if int(length) > len(text)-at {
			return // the longer ones follow
		}
		sum := sumOf(s.set.key, text[at:at+int(length)])
		if from(length, sum) && rest[0].length == length && rest[0].sum == sum {
			s.add(Hit{Source: s.set.sources[rest[0].source], Line: int(rest[0].line), How: how, id: sum})
		}
		more = from(length+1, 0)
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
	if n := s.found.of(h); !s.seen[h.id] && *n < maxHits {
		*n++
		s.seen[h.id] = true
		s.hits = append(s.hits, h)
	}
}

// Without returns the hits of content that other has not, such as the hits in a file's earlier version. It returns
// all if other may be incomplete.
func Without(hits, other []Hit) (rest []Hit) {
	var found tally
	for _, o := range other {
		*found.of(o)++
	}
	if found.secret >= maxHits || found.other >= maxHits {
		return hits
	}
	for _, h := range hits {
		if !slices.ContainsFunc(other, func(o Hit) bool { return o.id == h.id }) {
			rest = append(rest, h)
		}
	}
	return rest
}
