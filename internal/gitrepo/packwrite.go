package gitrepo

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // the format's hash
	"encoding/binary"
	"hash"
	"hash/crc32"
	"io"
	"slices"
)

// A PackWriter writes git objects as a pack file without deltas. [NewPackWriter] makes it, Add is called for
// each object, and Finish returns the index.
type PackWriter struct {
	out     io.Writer
	sum     hash.Hash
	at      uint64
	entries []packed
}

type packed struct {
	id  ID
	crc uint32
	at  uint64
}

// NewPackWriter writes the header of a pack of count objects to w. Exactly count calls of Add must follow,
// and then Finish.
func NewPackWriter(w io.Writer, count int) (*PackWriter, error) {
	p := &PackWriter{sum: sha1.New()} //nolint:gosec // the format's hash
	p.out = io.MultiWriter(w, p.sum)
	head := binary.BigEndian.AppendUint32([]byte("PACK"), 2)
	return p, p.write(binary.BigEndian.AppendUint32(head, uint32(count)))
}

func (p *PackWriter) write(b []byte) error {
	n, err := p.out.Write(b)
	p.at += uint64(n)
	return err
}

// Add writes one object to the pack and notes its offset for the index. [NewPackWriter] fixed the number of
// calls.
func (p *PackWriter) Add(o Object) error {
	size := uint64(len(o.Data))
	c := byte(o.Kind)<<4 | byte(size&15)
	var b bytes.Buffer
	for size >>= 4; size > 0; size >>= 7 {
		b.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	b.WriteByte(c)
	z := zlib.NewWriter(&b)
	if _, err := z.Write(o.Data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	p.entries = append(p.entries, packed{o.ID(), crc32.ChecksumIEEE(b.Bytes()), p.at})
	return p.write(b.Bytes())
}

// Finish writes the checksum at the end of the pack. It returns the content of the pack's index file, and the
// name under which git expects both files, without extension.
func (p *PackWriter) Finish() (index []byte, name string, err error) {
	sum := p.sum.Sum(nil)
	if err := p.write(sum); err != nil {
		return nil, "", err
	}
	slices.SortFunc(p.entries, func(a, b packed) int { return bytes.Compare(a.id[:], b.id[:]) })
	b := binary.BigEndian.AppendUint32([]byte("\xfftOc"), 2)
	n := 0
	for first := range 256 {
		for n < len(p.entries) && int(p.entries[n].id[0]) == first {
			n++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for _, e := range p.entries {
		b = append(b, e.id[:]...)
	}
	for _, e := range p.entries {
		b = binary.BigEndian.AppendUint32(b, e.crc)
	}
	var large []byte
	for _, e := range p.entries {
		if e.at < 1<<31 {
			b = binary.BigEndian.AppendUint32(b, uint32(e.at))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(large)/8))
		large = binary.BigEndian.AppendUint64(large, e.at)
	}
	b = append(append(b, large...), sum...)
	end := sha1.Sum(b) //nolint:gosec // the format's hash
	return append(b, end[:]...), "pack-" + ID(sum).String(), nil
}
