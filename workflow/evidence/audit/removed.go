package audit

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/errs"
	"golang.org/x/mod/sumdb/tlog"
)

// RecordsRemoved is the type of the record in an evidence log which says that older records are removed under a
// retention rule. It contains the signed statement of the removal.
const RecordsRemoved = "snapfs.evidence.removed"

// Opening is how many records at the beginning of an evidence log no retention rule removes: the one of the sandbox's
// creation, with its policy, and the one that names the signed start statement.
const Opening = 2

// A Removed describes the records of an evidence log that were removed under a retention rule, which follow the first
// [Opening] records. It is the part "removed" in the signed statement of the removal, and has what the removed records say
// about the rest of the log.
type Removed struct {
	// First and Last are the numbers of the first and of the last removed record, and Digest that of the last line.
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
	Digest string `json:"last_digest"`
	// Sizes are sizes of the log within the removed records, ascending, whose Merkle roots can still be computed, and
	// last the first size behind these records.
	Sizes []int64 `json:"sizes"`
	// Hashes are those of the complete subtrees of the Merkle tree over the removed records, in hexadecimal digits: for
	// each part between two sizes the fewest subtrees that cover it, from left to right.
	Hashes []string `json:"hashes"`
	// Running are the commands that had started and not ended at the last removed record.
	Running []string `json:"running"`
	// Torn is set if a removed record says that a line was cut off.
	Torn bool `json:"torn"`
	// Tests is the number of self-tests in the removed records, and Fault the first breach of the policy, or "".
	Tests int64  `json:"tests"`
	Fault string `json:"policy_fault"`
}

// Next returns the number of the first record after the removed ones.
func (r *Removed) Next() int64 { return r.Last + 1 }

// endsAs reports whether the records that follow r and those that follow other have the same place in the chain of the
// evidence log. Each of the two is nil if no records were removed.
func (r *Removed) endsAs(other *Removed) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Last == other.Last && r.Digest == other.Digest
}

// A block is a complete subtree of an evidence log's Merkle tree: over 1<<level records, of which the first has the
// number at<<level.
type block struct {
	level int
	at    int64
}

// cover returns the fewest complete subtrees that together have the records from number from to before number to.
func cover(from, to int64) (all []block) {
	for from < to {
		level := 0
		for from&(1<<level) == 0 && from+(2<<level) <= to {
			level++
		}
		all = append(all, block{level, from >> level})
		from += 1 << level
	}
	return all
}

// blocks returns the subtrees whose hashes r has, in their order. Errors: if the numbers of r do not fit together.
func (r *Removed) blocks() (all []block, err error) {
	bad := errors.New("the numbers of the removed records do not fit together")
	if r.First != Opening || r.Last < r.First || r.Last >= 1<<50 || len(r.Sizes) == 0 || r.Sizes[len(r.Sizes)-1] != r.Next() {
		return nil, bad
	}
	from := r.First
	for _, size := range r.Sizes {
		if size <= from {
			return nil, bad
		}
		all = append(all, cover(from, size)...)
		from = size
	}
	if len(all) != len(r.Hashes) {
		return nil, bad
	}
	return all, nil
}

// Remove fills in the numbers and the hashes of r for the removal of the records before number next from the log with
// the Merkle tree t. keep are sizes of the log for which others hold signed roots; those that can no longer be
// computed are left out.
func (t *Tree) Remove(r *Removed, next int64, keep []int64) error {
	r.First, r.Last, r.Sizes, r.Hashes = Opening, next-1, []int64{}, []string{}
	before := int64(Opening)
	for _, size := range append(keep, next) {
		if size <= before || size > next {
			continue
		}
		var hashes []string
		for _, b := range cover(before, size) {
			hash, err := t.ReadHashes([]int64{tlog.StoredHashIndex(b.level, b.at)})
			if err != nil {
				hashes = nil
				break
			}
			hashes = append(hashes, hex.EncodeToString(hash[0][:]))
		}
		switch {
		case hashes != nil:
			r.Sizes, r.Hashes, before = append(r.Sizes, size), append(r.Hashes, hashes...), size
		case size == next:
			return errors.New("the Merkle tree has no hash of the records to remove")
		}
	}
	return nil
}

// TreeWithout returns the Merkle tree over an evidence log from which the records r were removed: lines are the first
// [Opening] lines and those after r. With r nil it is [TreeOf].
func TreeWithout(lines [][]byte, r *Removed) (*Tree, error) {
	if r == nil {
		return TreeOf(lines)
	}
	if len(lines) < Opening {
		return nil, errors.New("the first records are missing")
	}
	blocks, err := r.blocks()
	if err != nil {
		return nil, err
	}
	known := map[block]tlog.Hash{{0, 0}: tlog.RecordHash(lines[0]), {0, 1}: tlog.RecordHash(lines[1])}
	join(known, block{0, 1})
	for i, b := range blocks {
		raw, err := hex.DecodeString(r.Hashes[i])
		if err != nil || len(raw) != tlog.HashSize || hex.EncodeToString(raw) != r.Hashes[i] {
			return nil, errors.New("a hash of the removed records is malformed")
		}
		known[b] = tlog.Hash(raw)
		join(known, b)
	}
	older := map[int64]tlog.Hash{}
	for b, hash := range known {
		older[tlog.StoredHashIndex(b.level, b.at)] = hash
	}
	return treeAfter(r.Next(), older, lines[Opening:])
}

// join puts the hashes of the subtrees into known that b, the last one on the right so far, completes.
func join(known map[block]tlog.Hash, b block) {
	for b.at&1 == 1 {
		left, ok := known[block{b.level, b.at - 1}]
		if !ok {
			return
		}
		parent := block{b.level + 1, b.at >> 1}
		known[parent] = tlog.NodeHash(left, known[b])
		b = parent
	}
}

// A removal is the part of the signed statement about removed records that package audit reads.
type removal struct {
	Removed Removed `json:"removed"`
}

// RemovedIn returns the last of records, those of an evidence log, that says which records were removed, with its
// place in the list, and what it says; nil if no record does. It checks no signature.
func RemovedIn(records []Record) (r *Removed, at int, err error) {
	for i := len(records) - 1; i >= 0; i-- {
		if records[i].Type == RecordsRemoved {
			r, err := records[i].removed()
			return r, i, err
		}
	}
	return nil, -1, nil
}

// Statement returns the signed statement in a record of type [RecordsRemoved], an envelope as one line.
func (r *Record) Statement() []byte {
	text, _ := r.Data["statement"].(string)
	return []byte(text)
}

func (r *Record) removed() (*Removed, error) {
	var envelope struct {
		Payload string `json:"payload"`
	}
	var said struct {
		Predicate removal `json:"predicate"`
	}
	err := json.Unmarshal(r.Statement(), &envelope)
	var body []byte
	if err == nil {
		body, err = base64.StdEncoding.Strict().DecodeString(envelope.Payload)
	}
	if err == nil {
		err = json.Unmarshal(body, &said)
	}
	if err == nil {
		_, err = said.Predicate.Removed.blocks()
	}
	if err != nil {
		return nil, fmt.Errorf("record %d has no statement of removed records: %w", r.Seq, err)
	}
	return &said.Predicate.Removed, nil
}

// GapIn returns which records are missing from records, an evidence log in its order, after the first [Opening]; nil if
// none is missing there. Errors: if the last statement of a removal does not name exactly these records, or there is
// none.
func GapIn(records []Record) (*Removed, error) {
	if len(records) <= Opening || records[Opening-1].Seq != Opening-1 || records[Opening].Seq <= Opening {
		return nil, nil //nolint:nilnil // no record is missing there
	}
	r, at, err := RemovedIn(records[Opening:])
	next := records[Opening].Seq
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, fmt.Errorf("records %d to %d are missing, and no statement says that they were removed", Opening, next-1)
	case r.Next() != next || records[Opening+at].Seq < r.Next():
		return nil, fmt.Errorf("records %d to %d are missing, and the statement says %d to %d", Opening, next-1, r.First, r.Last)
	}
	return r, nil
}

// SignedBy makes the evidence log accept that records were removed, if check returns no error for the signed statement
// about it, an envelope as one line. Without it no removal is accepted.
func (l *Log) SignedBy(check func(envelope []byte) error) *Log {
	l.signed = check
	return l
}

// without returns those segments of the evidence log all, in which number at does not begin with record end, that remain
// after a removal of records: the first lines, and what follows the removed records. The newest file of the log is the
// last one. Errors: errs.ErrCorrupt, if no signed statement explains what is missing.
func (l *Log) without(all []segment, at int, end int64) ([]segment, error) {
	gone := l.missing(all[at].path, all[at].first, end)
	if all[0].first != 0 || len(all[0].lines) < Opening {
		return nil, gone
	}
	for i := len(all) - 1; i >= at; i-- {
		for j := len(all[i].lines) - 1; j >= 0; j-- {
			if TypeOf(all[i].lines[j]) != RecordsRemoved {
				continue
			}
			record, err := Parse(all[i].lines[j])
			if err != nil {
				return nil, gone
			}
			r, err := record.removed()
			if err == nil && l.signed == nil {
				err = errors.New("its signature is not checked here")
			}
			if err == nil {
				err = l.signed(record.Statement())
			}
			if err != nil {
				return nil, errs.New("reading the record of "+l.sandbox, all[i].path, errs.ErrCorrupt,
					"records are missing, and record "+strconv.FormatInt(record.Seq, 10)+" does not explain it: "+err.Error())
			}
			return l.after(all, r, gone)
		}
	}
	return nil, gone
}

// after returns the segments of the evidence log all without the removed records r; gone is the error if they are not
// those that r leaves.
func (l *Log) after(all []segment, r *Removed, gone error) ([]segment, error) {
	first := all[0]
	first.lines = first.lines[:Opening]
	kept := []segment{first}
	end := r.Next()
	for _, s := range all {
		if s.first < r.Next() {
			continue
		}
		if s.first != end {
			return nil, l.missing(s.path, s.first, end)
		}
		s.gap = nil
		if s.first == r.Next() {
			s.gap = r
		}
		kept = append(kept, s)
		end += int64(len(s.lines))
	}
	if len(kept) == 1 {
		return nil, gone
	}
	return kept, nil
}

// gapOf returns the removed records in segments, nil if there are none.
func gapOf(all []segment) *Removed {
	for _, s := range all {
		if s.gap != nil {
			return s.gap
		}
	}
	return nil
}

// verifyRemoved returns the position in the evidence log behind its removed records, from which on the closed
// segments are verified. missing is the error if none were removed. The caller holds l.mu.
func (l *Log) verifyRemoved(missing error) (position, error) {
	all, _, err := l.read()
	if err != nil {
		return position{}, err
	}
	r := gapOf(all)
	if r == nil {
		return position{}, missing
	}
	return position{First: r.Next(), Records: r.Next(), Last: r.Digest, Sandbox: l.sandbox}, nil
}

// isClosed returns the number of the first record in the closed segment with this file name, compressed or not.
func isClosed(name string) (first int64, ok bool) {
	plain := name
	if filepath.Ext(name) == zipped {
		plain = name[:len(name)-len(zipped)]
	}
	if len(plain) < len(segmentPrefix)+len(segmentSuffix) {
		return 0, false
	}
	first, err := strconv.ParseInt(plain[len(segmentPrefix):len(plain)-len(segmentSuffix)], 10, 64)
	return first, err == nil && plain == segmentName(first)
}

// unchained returns the error for line number line, from 0, in the segment s of the evidence log.
func (l *Log) unchained(s segment, line int) error {
	n := strconv.Itoa(line + 1)
	show := "sed -n " + n + "p " + errs.Quoted(s.path)
	if filepath.Ext(s.path) == zipped {
		show = "zcat " + errs.Quoted(s.path) + " | sed -n " + n + "p"
	}
	return errs.New("reading the record of "+l.sandbox, s.path, errs.ErrCorrupt,
		fmt.Sprintf("record %d, in line %s, is no record of this sandbox that follows the record before", s.first+int64(line), n), show+"   # the damaged line")
}
