package audit

import (
	"errors"

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
// files), by which a line is proved to be in it.
func TreeOf(lines [][]byte) (*Tree, error) {
	t := &Tree{hashes: make([]tlog.Hash, 0, 2*len(lines))}
	for _, line := range lines {
		if err := t.append(line); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Tree) append(line []byte) error {
	more, err := tlog.StoredHashes(t.size, line, t)
	if err != nil {
		return err
	}
	t.hashes, t.size = append(t.hashes, more...), t.size+1
	return nil
}

// ReadHashes returns the hashes of the Merkle tree with these indexes. Package tlog calls it to compute roots
// and proofs.
func (t *Tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		if at >= t.first {
			list[i] = t.hashes[at-t.first]
			continue
		}
		hash, ok := t.older[at]
		if !ok {
			return nil, errors.New("the records that this hash is of were removed")
		}
		list[i] = hash
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
