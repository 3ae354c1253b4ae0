package placeholder

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
)

// minSecret is the length in bytes below which a secret is not searched for: it would be in many files by
// chance.
const minSecret = 8

// A Print recognises one secret, or one encoding of it, in a file. It contains a keyed digest and the length
// of the secret, not the secret.
type Print struct {
	Name   string `json:"name"`
	Length int    `json:"length"`
	// Salt is the key of Sum, and Sum the HMAC-SHA-256 of the secret. Weak is its rolling hash of 16 bits, which
	// selects the places worth a Sum and says little about the secret.
	Salt []byte `json:"salt"`
	Sum  []byte `json:"sum"`
	Weak uint16 `json:"weak"`
}

// Prints returns the prints, keyed digests, that recognise the secret called name and its usual encodings in
// files; none for a short secret.
func Prints(name string, secret []byte) (all []Print) {
	for _, form := range Forms(secret) {
		if len(form) < minSecret {
			continue
		}
		salt := make([]byte, 16)
		_, _ = rand.Read(salt) // it never fails
		all = append(all, Print{Name: name, Length: len(form), Salt: salt, Sum: sum(salt, form), Weak: weak(form)})
	}
	return all
}

// Forms returns a secret as it is, and as it is within encoded text: base64 at each of its three alignments,
// hexadecimal, escaped for a URL, for HTML, and for JSON, in which some writers escape the slash. Each form is there
// once.
func Forms(secret []byte) [][]byte {
	forms := [][]byte{secret}
	add := func(form []byte) {
		for _, f := range forms {
			if bytes.Equal(f, form) {
				return
			}
		}
		forms = append(forms, form)
	}
	for _, escaped := range []string{url.QueryEscape(string(secret)), url.PathEscape(string(secret))} {
		add([]byte(escaped))
		add([]byte(lowerEscapes(escaped)))
	}
	for _, quotes := range [][]string{nil, {`"`, "&#34;", "'", "&#39;"}, {`"`, "&quot;", "'", "&#x27;"}, {`"`, "&quot;", "'", "&#039;"}, {`"`, "&quot;"}} {
		add([]byte(strings.NewReplacer(append([]string{"&", "&amp;", "<", "&lt;", ">", "&gt;"}, quotes...)...).Replace(string(secret)))) // for HTML
	}
	if text, err := json.Marshal(string(secret)); err == nil {
		text = text[1 : len(text)-1]
		add(text) // with <, > and & as \u003c and so on
		add(bytes.ReplaceAll(text, []byte("/"), []byte(`\/`)))
	}
	plain := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(secret))
	add([]byte(plain))
	add([]byte(strings.ReplaceAll(plain, "/", `\/`)))
	add([]byte(hex.EncodeToString(secret)))
	add(bytes.ToUpper([]byte(hex.EncodeToString(secret))))
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for skip := range 3 {
			// Of the encoded text only the letters that no neighbour of the secret has a part in.
			padded := append(make([]byte, skip), secret...)
			from := []int{0, 2, 3}[skip]
			to := len(padded) * 8 / 6
			if text := []byte(e.EncodeToString(padded)); from < to {
				add(text[from:to])
			}
		}
	}
	return forms
}

// lowerEscapes returns text, escaped for a URL, with the digits of its escapes in lower case, as some programs write
// them.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

func sum(salt, text []byte) []byte {
	h := hmac.New(sha256.New, salt)
	h.Write(text)
	return h.Sum(nil)
}

// base is the base of the rolling hash, modulo 2^16, with which a text is searched for secrets.
const base = 257

func weak(text []byte) (h uint16) {
	for _, c := range text {
		h = h*base + uint16(c) + 1
	}
	return h
}

// Found is the place of a secret or placeholder that [Search] found in a text.
type Found struct {
	// Secret is the name of the secret, or "" for a placeholder.
	Secret string
	Offset int64
}

// ErrTooLarge means that a text was longer than [Search] was allowed to read.
var ErrTooLarge = errors.New("too large to search for secrets")

// Search reads r to its end and returns the first secret that one of prints recognises, or the first
// placeholder, or nil. It reads at most limit bytes; a longer text is ErrTooLarge, unless something was
// found. Cost: about 2 ns a byte and print.
func Search(r io.Reader, prints []Print, limit int64) (*Found, error) {
	longest := Len
	for _, p := range prints {
		longest = max(longest, p.Length)
	}
	buf := make([]byte, 0, max(1<<20, 4*longest))
	var offset, read int64 // of buf[0]; of all bytes
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		read += int64(n)
		if f := SearchText(buf, prints); f != nil {
			f.Offset += offset
			return f, nil
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, nil //nolint:nilnil // nothing was found
		case err != nil:
			return nil, err
		case read > limit:
			return nil, ErrTooLarge
		}
		keep := longest - 1
		offset += int64(len(buf) - keep)
		copy(buf, buf[len(buf)-keep:])
		buf = buf[:keep]
	}
}

// SearchText returns a placeholder, or else the first secret that one of prints recognises, in text; nil if
// there is none.
func SearchText(text []byte, prints []Print) *Found {
	if at := Find(text); at >= 0 {
		return &Found{Offset: int64(at)}
	}
	return secretIn(text, prints)
}

// SecretIn returns the name of the first secret that one of prints recognises in text; "" if there is none. A
// placeholder is no secret.
func SecretIn(text []byte, prints []Print) string {
	if f := secretIn(text, prints); f != nil {
		return f.Secret
	}
	return ""
}

func secretIn(text []byte, prints []Print) *Found {
	for i := range prints {
		if at := prints[i].find(text); at >= 0 {
			return &Found{Secret: prints[i].Name, Offset: int64(at)}
		}
	}
	return nil
}

// find returns the offset in text of the secret that the print p recognises, or -1.
func (p *Print) find(text []byte) int {
	n := p.Length
	if n <= 0 || len(text) < n {
		return -1
	}
	power := uint16(1)
	for range n - 1 {
		power *= base
	}
	h := weak(text[:n])
	for at := 0; ; at++ {
		if h == p.Weak && hmac.Equal(sum(p.Salt, text[at:at+n]), p.Sum) {
			return at
		}
		if at+n == len(text) {
			return -1
		}
		h = (h-(uint16(text[at])+1)*power)*base + uint16(text[at+n]) + 1
	}
}
