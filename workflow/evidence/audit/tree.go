package audit

import (
	"crypto/sha256"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// A Tree is a Merkle tree over the lines of an evidence log or a manifest, a list of changed files (RFC
// 6962), with all its hashes in memory. It gives short proofs that a line is one of them.
type Tree struct {
	size   int64
	hashes []tlog.Hash
}

// TreeOf returns the Merkle tree (RFC 6962) over the lines of an evidence log or a manifest (list of changed
// files), by which a line is proved to be in it. Several processors share the work.
func TreeOf(lines [][]byte) (*Tree, error) {
	n := len(lines)
	t := &Tree{size: int64(n), hashes: make([]tlog.Hash, tlog.StoredHashCount(int64(n)))}
	InParts(n, func(from, to int) int {
		var buf []byte
		for i := from; i < to; i++ {
			buf = append(append(buf[:0], leafPrefix), lines[i]...)
			t.hashes[storedIndex(0, i)] = sha256.Sum256(buf)
		}
		return -1
	})
	for level := 1; n>>level > 0; level++ {
		InParts(n>>level, func(from, to int) int {
			var buf [1 + 2*tlog.HashSize]byte
			buf[0] = nodePrefix
			for i := from; i < to; i++ {
				copy(buf[1:], t.hashes[storedIndex(level-1, 2*i)][:])
				copy(buf[1+tlog.HashSize:], t.hashes[storedIndex(level-1, 2*i+1)][:])
				t.hashes[storedIndex(level, i)] = sha256.Sum256(buf[:])
			}
			return -1
		})
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
func storedIndex(level, i int) int {
	i = (i+1)<<level - 1 // the last leaf of its subtree
	return 2*i - bits.OnesCount(uint(i)) + level
}

// ReadHashes returns the hashes of the Merkle tree with these indexes. Package tlog calls it to compute roots
// and proofs.
func (t *Tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		list[i] = t.hashes[at]
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
