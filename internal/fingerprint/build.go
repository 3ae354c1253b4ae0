package fingerprint

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// Secret is the kind of a file of secrets, such as passwords: each of its lines and values is recognised.
const Secret = "secret"

// Bounds of a [Set], so that a search has a bound in memory and time: 16 MiB of content, and about as many lines as that
// much text has.
const (
	// MaxBytes is how many bytes of files a set recognises at most. The same content counts once.
	MaxBytes  = 16 << 20
	maxBlocks = MaxBytes / blockLen
	maxValues = 400_000
)

// Errors of [Builder.Add].
var (
	// ErrTooMuch means that the files are more than one set may recognise.
	ErrTooMuch = errors.New("more than 16 MiB of labelled content, or more than 400,000 lines of it, is not recognised")
	// ErrTooPlain means that a file has nothing by which it could be recognised: it has fewer than 8 bytes, or only
	// plain words, numbers, or bytes that repeat.
	ErrTooPlain = errors.New("it has too little content to be recognised: 8 bytes are needed that are no plain word or number")
)

// A Builder reads labelled files and makes a [Set] that recognises their content. One goroutine uses it.
type Builder struct {
	set  *Set
	sums map[uint64]bool // the hashes of the blocks; true for a block of a file of secrets
}

// NewBuilder returns a builder whose set recognises what old does, and the files that are added. old may be nil.
func NewBuilder(old *Set) *Builder {
	b := &Builder{set: &Set{}, sums: map[uint64]bool{}}
	if old != nil {
		b.set = &Set{key: old.key, sources: slices.Clone(old.sources), values: slices.Clone(old.values), blocks: slices.Clone(old.blocks)}
		for _, one := range old.blocks {
			b.sums[one.sum] = old.sources[one.source].Kind == Secret
		}
		return b
	}
	var key [8]byte
	_, _ = rand.Read(key[:]) // it never fails
	b.set.key = binary.LittleEndian.Uint64(key[:])
	return b
}

// Has reports whether the set recognises this version of a file already.
func (b *Builder) Has(s Source) bool { return slices.Contains(b.set.sources, s) }

// Add reads a file from r and makes the set recognise it. An empty file is nothing to recognise, and no error.
// Errors: [ErrTooMuch] and [ErrTooPlain], after which the set does not recognise the file; those of r.
func (b *Builder) Add(s Source, r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return err
	}
	if len(text) > MaxBytes {
		return ErrTooMuch
	}
	at := uint32(len(b.set.sources))
	before := len(b.set.values)
	blocks := b.addBlocks(text, at, s.Kind == Secret)
	b.addValues(text, at, s.Kind == Secret)
	switch {
	case len(b.set.blocks) > maxBlocks, len(b.set.values) > maxValues:
		return ErrTooMuch
	case blocks == 0 && len(b.set.values) == before && len(bytes.TrimSpace(text)) > 0:
		return ErrTooPlain
	}
	b.set.sources = append(b.set.sources, s)
	return nil
}

// addBlocks makes the set recognise the blocks of a file, the number at of its sources. It returns how many blocks
// there are, without those in which hardly any byte differs from the others: a line of hyphens is in many files.
func (b *Builder) addBlocks(text []byte, at uint32, secret bool) (count int) {
	one := func(part []byte) {
		if plain(part) {
			return
		}
		count++
		sum := blockSum(b.set.key, part)
		if isSecret, known := b.sums[sum]; !known || secret && !isSecret {
			b.sums[sum] = secret
			b.set.blocks = append(b.set.blocks, block{sum, at})
		}
	}
	for rest := text; len(rest) >= blockLen; rest = rest[blockLen:] {
		one(rest[:blockLen])
	}
	if len(text) > blockLen && len(text)%blockLen != 0 {
		one(text[len(text)-blockLen:])
	}
	return count
}

// blockSum returns the hash of a block.
func blockSum(key uint64, part []byte) (h uint64) {
	for _, c := range part {
		h = h*multiplier + uint64(c) + 1
	}
	return mix(key, h)
}

// plain reports whether a block has so few different bytes that it is in many files by chance.
func plain(part []byte) bool {
	const few = 6
	var seen [256]bool
	n := 0
	for _, c := range part {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n < few
}

// addValues makes the set recognise the whole of a short file, the number at of its sources, and its lines. secret
// is set for a file of secrets, whose values and short lines are recognised, too.
func (b *Builder) addValues(text []byte, at uint32, secret bool) {
	whole := bytes.TrimSpace(text)
	b.addValue(whole, at, 0)
	line := uint32(0)
	for one := range bytes.Lines(text) {
		line++
		one = bytes.TrimSpace(one)
		if !secret {
			if len(one) >= minRow && bytes.ContainsAny(one, "0123456789@") {
				b.addValue(one, at, line)
			}
			continue
		}
		b.addSecrets(one, at, line)
	}
}

// addSecrets makes the set recognise what may be a secret in a line of a file of secrets: each value after an equals
// sign or a colon, each word, and the whole line if it has no such sign and is no comment. The name of a value is none.
func (b *Builder) addSecrets(one []byte, at, line uint32) {
	if !bytes.ContainsAny(one, "=:#") {
		b.addValue(bare(one), at, line)
	}
	for i, c := range one {
		if c == '=' || c == ':' {
			b.addValue(bare(one[i+1:]), at, line)
		}
	}
	for word := range bytes.FieldsSeq(one) {
		if !bytes.HasSuffix(word, []byte(":")) && !bytes.ContainsRune(bytes.TrimRight(word, "=\"'"), '=') {
			b.addValue(bare(word), at, line)
		}
	}
}

// minRow is the length in bytes from which a line of a file without secrets is recognised by itself.
const minRow = 24

// bare returns a value of a line without blanks, quotes and the comma after it.
func bare(text []byte) []byte {
	text = bytes.TrimRight(bytes.TrimSpace(text), ",;")
	return bytes.TrimSpace(bytes.Trim(text, "\"'`"))
}

// addValue makes the set recognise text, unless it is too short or too long for that, or a plain word.
func (b *Builder) addValue(text []byte, at, line uint32) {
	if len(text) < minValue || len(text) > maxValue || everyday(text) || plainRun(text) {
		return
	}
	b.set.values = append(b.set.values, value{
		anchor: anchorOf(b.set.key, text), length: uint32(len(text)), source: at, line: line, sum: sumOf(b.set.key, text),
	})
}

// everyday reports whether a short text has only letters, or only digits, so that it is in many files by chance, such
// as production or 20250101.
func everyday(text []byte) bool {
	const long = 16
	if len(text) >= long {
		return false
	}
	lower, upper, digits := 0, 0, 0
	for _, c := range text {
		switch {
		case 'a' <= c && c <= 'z':
			lower++
		case 'A' <= c && c <= 'Z':
			upper++
		case '0' <= c && c <= '9':
			digits++
		}
	}
	n := len(text)
	return lower+upper == n && (upper == n || upper <= 1) || digits == n
}

// plainRun reports whether a text is made of fewer than four different bytes, as a rule of hyphens is.
func plainRun(text []byte) bool {
	var seen []byte
	for _, c := range text {
		if !bytes.Contains(seen, []byte{c}) {
			if seen = append(seen, c); len(seen) > 3 {
				return false
			}
		}
	}
	return true
}

// Set returns the set that recognises the files that were added. The builder may not be used after it.
func (b *Builder) Set() *Set {
	b.set.index()
	return b.set
}
