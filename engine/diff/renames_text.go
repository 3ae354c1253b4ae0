package diff

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
)

// texts measures how similar files are, within the bounds of [Renames], and caches the outlines of files
// already read.
type texts struct {
	seed  maphash.Seed
	known map[int]outline
	left  int64 // bytes that may still be read
	pairs int   // pairs that may still be compared
}

// An outline holds the hashes of the pieces of a text, sorted: lines, and pieces of pieceMax bytes of longer
// lines. Comparing outlines shows how similar two texts are. It is nil for a file that is not compared.
type outline []piece

type piece struct {
	hash uint64
	size int64 // of all pieces with this hash
}

const pieceMax = 64

func newTexts() texts {
	return texts{seed: maphash.MakeSeed(), known: map[int]outline{}, left: SimilarRead, pairs: SimilarPairs}
}

// outlineOf returns the outline of the file of change i, for measuring its similarity to others. It reads
// each file once.
func (f *finder) outlineOf(i int) (outline, error) {
	t := &f.texts
	if p, ok := t.known[i]; ok {
		return p, nil
	}
	size := f.changes[i].node().Size
	if size == 0 || size > SimilarMax || size > t.left {
		return nil, nil
	}
	t.left -= size
	file, _, err := f.openNode(i)
	if err != nil {
		return nil, err
	}
	var p outline
	if file != nil {
		defer file.Close()
		data, err := readAt(int(file.Fd()), make([]byte, size), 0)
		if err != nil {
			return nil, fail(f.changes[i].Path, err)
		}
		p = t.outlineOf(data)
	}
	t.known[i] = p
	return p, nil
}

func (t *texts) outlineOf(data []byte) outline {
	if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
		return nil // git's rule for binary files
	}
	var p outline
	for len(data) > 0 {
		n := min(len(data), pieceMax)
		if end := bytes.IndexByte(data[:n], '\n'); end >= 0 {
			n = end + 1
		}
		p = append(p, piece{maphash.Bytes(t.seed, data[:n]), int64(n)})
		data = data[n:]
	}
	slices.SortFunc(p, func(a, b piece) int { return cmp.Compare(a.hash, b.hash) })
	merged := p[:0]
	for _, x := range p {
		if last := len(merged) - 1; last >= 0 && merged[last].hash == x.hash {
			merged[last].size += x.size
		} else {
			merged = append(merged, x)
		}
	}
	return slices.Clip(merged)
}

// common returns the number of bytes in those pieces (hashed parts of a text) that both outlines p and q
// have, as a measure of the similarity of two files.
func (p outline) common(q outline) (n int64) {
	for len(p) > 0 && len(q) > 0 {
		switch {
		case p[0].hash < q[0].hash:
			p = p[1:]
		case p[0].hash > q[0].hash:
			q = q[1:]
		default:
			n += min(p[0].size, q[0].size)
			p, q = p[1:], q[1:]
		}
	}
	return n
}

// similarity compares the texts of the deleted change from and the added change to. It returns the part of the larger
// one that is also in the smaller one, in percent, at most 99; 0 if they are not compared.
func (f *finder) similarity(from, to int) (int, error) {
	a, b := f.changes[from].Old.Size, f.changes[to].New.Size
	p, err := f.outlineOf(from)
	if err != nil || p == nil {
		return 0, err
	}
	q, err := f.outlineOf(to)
	if err != nil || q == nil {
		return 0, err
	}
	percent := int(100 * p.common(q) / max(a, b))
	return min(percent, 99), nil // below 100: the pieces may be in another order
}

// bySimilarity pairs similar deleted and added texts as renames: first among files of the same name, then
// among all, unless they are too many.
func (f *finder) bySimilarity() error {
	measurable := func(n *Node) bool { return n.Mode.IsRegular() && n.Size > 0 && n.Size <= SimilarMax }
	for _, b := range matchSets(f, func(i int, n *Node) (string, bool) {
		_, name := Split(f.changes[i].Path)
		return name, measurable(n)
	}) {
		if err := f.pairSimilar(b); err != nil {
			return err
		}
	}
	for _, b := range matchSets(f, func(_ int, n *Node) (bool, bool) { return true, measurable(n) }) {
		if err := f.pairSimilar(b); err != nil {
			return err
		}
	}
	return nil
}

// pairSimilar pairs the deleted and added texts in the set b as renames, the most similar ones first.
func (f *finder) pairSimilar(b *matchSet) error {
	if len(b.from)*len(b.to) > f.texts.pairs {
		return nil
	}
	type pair struct{ from, to, percent int }
	var pairs []pair
	for _, i := range b.from {
		if err := f.ctx.Err(); err != nil {
			return fail(f.changes[i].Path, err)
		}
		for _, j := range b.to {
			x, y := f.changes[i].Old.Size, f.changes[j].New.Size
			if min(x, y)*100 < max(x, y)*SimilarMin {
				continue
			}
			percent, err := f.similarity(i, j)
			if err != nil {
				return err
			}
			f.texts.pairs--
			if percent >= SimilarMin {
				pairs = append(pairs, pair{i, j, percent})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.percent, a.percent) })
	for _, p := range pairs {
		if f.unpaired(p.from) && f.unpaired(p.to) {
			f.pair(p.from, p.to)
		}
	}
	return nil
}
