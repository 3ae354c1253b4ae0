package audit

import (
	"crypto/sha256"
	"errors"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// A Tree is a Merkle tree over the lines of an evidence log or a manifest, a list of changed files (RFC
// 6962), with all its hashes in memory. It gives short proofs that a line is one of them.
type Tree struct {
	size   int64
	hashes []tlog.Hash
	// first is the index of the first of hashes; older are those before it that are known, where records were removed.
	first int64
	older map[int64]tlog.Hash
}

// TreeOf returns the Merkle tree (RFC 6962) over the lines of an evidence log or a manifest (list of changed
// files), by which a line is proved to be in it. Several processors share the work.
func TreeOf(lines [][]byte) (*Tree, error) { return treeAfter(0, nil, lines) }

// treeAfter returns the Merkle tree over first lines, of which it gets the hashes older by their index, and over lines,
// which follow them. Several processors share the work. Errors: if older has not the hashes by which lines continue the
// tree.
func treeAfter(first int64, older map[int64]tlog.Hash, lines [][]byte) (*Tree, error) {
	t := &Tree{size: first + int64(len(lines)), first: tlog.StoredHashCount(first), older: older}
	t.hashes = make([]tlog.Hash, tlog.StoredHashCount(t.size)-t.first)
	inParts(len(lines), func(from, to int) int {
		var buf []byte
		for i := from; i < to; i++ {
			buf = append(append(buf[:0], leafPrefix), lines[i]...)
			t.hashes[storedIndex(0, first+int64(i))-t.first] = sha256.Sum256(buf)
		}
		return -1
	})
	for level := 1; first>>level < t.size>>level; level++ {
		begin := first >> level // of those before, all lines are older
		missing := inParts(int(t.size>>level-begin), func(from, to int) int {
			var buf [1 + 2*tlog.HashSize]byte
			buf[0] = nodePrefix
			for i := from; i < to; i++ {
				at := begin + int64(i)
				left, err := t.hash(storedIndex(level-1, 2*at))
				if err != nil {
					return i
				}
				copy(buf[1:], left[:])
				copy(buf[1+tlog.HashSize:], t.hashes[storedIndex(level-1, 2*at+1)-t.first][:])
				t.hashes[storedIndex(level, at)-t.first] = sha256.Sum256(buf[:])
			}
			return -1
		})
		if missing >= 0 {
			return nil, errRemoved
		}
	}
	return t, nil
}

// A hash in a Merkle tree (RFC 6962, section 2.1) is that of leafPrefix and a line, or that of nodePrefix and the two
// hashes below it.
const (
	leafPrefix = 0
	nodePrefix = 1
)

// storedIndex returns the index in a Tree of the hash number i of a level, from the leaves on. It equals
// [tlog.StoredHashIndex], by fewer steps.
func storedIndex(level int, i int64) int64 {
	i = (i+1)<<level - 1 // the last leaf of its subtree
	return 2*i - int64(bits.OnesCount64(uint64(i))) + int64(level)
}

var errRemoved = errors.New("the records that this hash is of were removed")

// hash returns the hash of the Merkle tree with this index.
func (t *Tree) hash(index int64) (tlog.Hash, error) {
	if index >= t.first {
		return t.hashes[index-t.first], nil
	}
	if h, ok := t.older[index]; ok {
		return h, nil
	}
	return tlog.Hash{}, errRemoved
}

// ReadHashes returns the hashes of the Merkle tree with these indexes. Package tlog calls it to compute roots
// and proofs.
func (t *Tree) ReadHashes(indexes []int64) (list []tlog.Hash, err error) {
	list = make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		if list[i], err = t.hash(at); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Size returns the number of lines of the evidence log or manifest over which the Merkle tree is made.
func (t *Tree) Size() int64 { return t.size }

// Root returns the root hash of the Merkle tree over the first n lines of the evidence log or manifest.
func (t *Tree) Root(n int64) (tlog.Hash, error) { return tlog.TreeHash(n, t) }

// Proof returns the hashes that prove, together with the root hash, that line number i belongs to the
// evidence log or manifest over which the Merkle tree is made.
func (t *Tree) Proof(i int64) (tlog.RecordProof, error) { return tlog.ProveRecord(t.size, i, t) }

// Continues checks an evidence log against an earlier version of it. It returns an error unless the first n
// lines of t have the Merkle root root, which the earlier version had.
func (t *Tree) Continues(n int64, root tlog.Hash) error {
	if n == 0 {
		return nil
	}
	whole, err := t.Root(t.size)
	if err != nil {
		return err
	}
	proof, err := tlog.ProveTree(t.size, n, t)
	if err != nil {
		return err
	}
	return tlog.CheckTree(proof, t.size, whole, n, root)
}
