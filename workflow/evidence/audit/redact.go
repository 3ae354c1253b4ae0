package audit

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/errs"
)

const digestPrefix = "sha256:"

// SaltedDigest returns the digest that stands in an evidence log for a text that must not be shown, such as
// an argument of a command. Without the salt, nobody can find the text by trying likely ones.
func SaltedDigest(salt, text string) string {
	var few [512]byte
	sum := sha256.Sum256(append(append(few[:0], salt...), text...))
	var digest [len(digestPrefix) + 2*sha256.Size]byte
	return string(hex.AppendEncode(append(digest[:0], digestPrefix...), sum[:]))
}

// A salts is a line of the file of salts beside an evidence log. It has the secret from which the salts of
// redacted texts, those of one record or of several, are derived, and the greatest number of these texts.
type salts struct {
	Secret string `json:"secret"`
	Texts  int    `json:"texts"`
}

// salt returns the salt for the digest of redacted text number i of an evidence log. The other salts
// cannot be derived from it, so it can be shown to others.
func (s salts) salt(i int) string {
	var few [64]byte
	sum := sha256.Sum256(strconv.AppendInt(append(append(few[:0], s.Secret...), '/'), int64(i), 10))
	return hex.EncodeToString(sum[:])
}

// saltsAtOnce is the number of redacted texts for which a stored secret gives the salts, from the second secret of a
// process on. So a process that runs many commands does not write to the file of salts for each of them. A search for a
// text takes a microsecond for each salt.
const saltsAtOnce = 1024

// Redact returns a salted digest for each of texts, and stores the salts. A person who knows a text can later
// show, with the salt, that a record is about it. The texts are stored nowhere.
func (l *Log) Redact(texts []string) ([]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.salted+len(texts) > l.salts.Texts {
		s := salts{rand.Text(), len(texts)}
		if l.salts.Texts > 0 {
			s.Texts = max(s.Texts, saltsAtOnce)
		}
		if err := l.storeSalts(s); err != nil {
			return nil, err
		}
		l.salts, l.salted = s, 0
	}
	digests := make([]string, len(texts))
	for i, text := range texts {
		digests[i] = SaltedDigest(l.salts.salt(l.salted+i), text)
	}
	l.salted += len(texts)
	return digests, nil
}

// storeSalts adds the line s to the file of salts beside the evidence log.
func (l *Log) storeSalts(s salts) error {
	path := filepath.Join(l.dir, saltsName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "\n"+`{"secret":%q,"texts":%d}`+"\n", s.Secret, s.Texts)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	return errs.With("storing salts", path, err)
}

// A Match is a digest in an evidence log that stands for a redacted text, with the salt by which others can
// check that it does.
type Match struct {
	Digest string `json:"digest"`
	Salt   string `json:"salt"`
}

// Matches returns the digests that stand for text in the evidence log, by the stored salts, also those that
// are in no record. It skips a line of the file of salts that a killed writer or a full disk left incomplete.
func (l *Log) Matches(text string) ([]Match, error) {
	path := filepath.Join(l.dir, saltsName)
	f, err := os.Open(path)
	if err != nil {
		return nil, errs.With("reading salts", path, err)
	}
	defer f.Close()
	all := []Match{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var s salts
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			continue // between two lines, or what a killed writer or a full disk left of one
		}
		for i := range s.Texts {
			all = append(all, Match{SaltedDigest(s.salt(i), text), s.salt(i)})
		}
	}
	return all, errs.With("reading salts", path, lines.Err())
}
