package fingerprint

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

const env = `# the production settings
DATABASE_URL="postgres://shop:tr0ub4dor&3@db.internal:5432/shop"
API_KEY=sk_live_9fKq27+xPz/41
DEBUG=false
`

func setOf(t *testing.T, files map[string]string) *Set {
	t.Helper()
	b := NewBuilder(nil)
	for name, text := range files {
		kind, name, _ := strings.Cut(name, ":")
		if err := b.Add(Source{Kind: kind, Name: name}, strings.NewReader(text)); err != nil {
			t.Fatal(name, err)
		}
	}
	text, err := b.Set().Encode()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Load(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"tr0ub4dor", "sk_live", "9fKq27"} {
		if bytes.Contains(text, []byte(part)) {
			t.Errorf("the set contains %s", part)
		}
	}
	return s
}

func packed(t *testing.T, text string, with string) string {
	t.Helper()
	var out bytes.Buffer
	var err error
	switch with {
	case "gzip":
		w := gzip.NewWriter(&out)
		_, err = w.Write([]byte(text))
		err = errors.Join(err, w.Close())
	case "zlib":
		w := zlib.NewWriter(&out)
		_, err = w.Write([]byte(text))
		err = errors.Join(err, w.Close())
	case "zip":
		w := zip.NewWriter(&out)
		f, bad := w.Create("x")
		if bad == nil {
			_, bad = f.Write([]byte(text))
		}
		err = errors.Join(bad, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// encodings are ways in which a program passes a text on.
func encodings(t *testing.T) map[string]func(string) string {
	return map[string]func(string) string{
		"plain":        func(s string) string { return s },
		"base64":       func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64 +1":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s)) },
		"base64 +2":    func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("xy" + s)) },
		"base64 lines": func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte("xy"+s)), 20) },
		"base64 twice": func(s string) string {
			return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(s))))
		},
		"hex":       func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":       func(s string) string { return "A" + strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"hex lines": func(s string) string { return wrap(hex.EncodeToString([]byte(s)), 10) },
		"query":     func(s string) string { return "a=1&v=" + url.QueryEscape(s) },
		"path":      func(s string) string { return "/v/" + url.PathEscape(s) },
		"each escaped": func(s string) string {
			return "%" + strings.Join(strings.Split(strings.ToUpper(wrap(hex.EncodeToString([]byte(s)), 2)), "\n"), "%")
		},
		"JSON":         func(s string) string { return `{"v":` + quoted(s) + `}` },
		"JSON in JSON": func(s string) string { return quoted(`{"v":` + quoted(s) + `}`) },
		"JSON base64": func(s string) string {
			return quoted(`{"v":` + quoted(base64.StdEncoding.EncodeToString([]byte(s))) + `}`)
		},
		"gzip":          func(s string) string { return packed(t, s, "gzip") },
		"gzip after":    func(s string) string { return "abc" + packed(t, s, "gzip") + "def" },
		"gzip base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(packed(t, s, "gzip"))) },
		"base64 gzip":   func(s string) string { return packed(t, base64.StdEncoding.EncodeToString([]byte(s)), "gzip") },
		"zlib":          func(s string) string { return packed(t, s, "zlib") },
		"zip":           func(s string) string { return packed(t, strings.Repeat("a", 100)+s, "zip") },
		"UTF-16 escape": func(s string) string { return strings.ReplaceAll(s, "&", `\u0026`) },
	}
}

func wrap(text string, n int) string {
	var out strings.Builder
	for i := 0; i < len(text); i += n {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(text[i:min(i+n, len(text))])
	}
	return out.String()
}

// TestSearchFindsLabelledContentInEachEncoding looks for each kind of labelled content in each encoding, at the
// start of a text, across the end of a chunk, and after it.
func TestSearchFindsLabelledContentInEachEncoding(t *testing.T) {
	rows := "name,mail,phone\n"
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		rows += fmt.Sprintf("Customer %d,%x@example.org,+1 555 %04d\n", i, random.Uint64(), i)
	}
	s := setOf(t, map[string]string{"secret:prod.env": env, "private:rows.csv": rows, "secret:pin": "  p1n-codes \n"})
	values := map[string]string{
		"a value": "sk_live_9fKq27+xPz/41", "a quoted value": "postgres://shop:tr0ub4dor&3@db.internal:5432/shop",
		"the whole file": "p1n-codes", "a row": strings.SplitN(rows[2000:], "\n", 3)[1], "63 bytes": rows[777 : 777+63],
	}
	filler := strings.Repeat("the quick brown fox jumps over the lazy dog. ", 1<<21/45)
	for what, text := range values {
		for how, encode := range encodings(t) {
			for _, before := range []int{0, 7, chunk - 20, chunk + 100} {
				if before > 0 && how == "zlib" || before > 7 && (what != "a value" || strings.Contains(how, " ")) {
					continue // a chunk takes long to fill
				}
				whole := filler[:before] + " " + encode(text) + " end"
				if how == "zlib" {
					whole = encode(text)
				}
				hits, err := s.Find([]byte(whole))
				if err != nil || len(hits) == 0 {
					t.Errorf("%s, %s after %d: %v, %v", what, how, before, hits, err)
				}
			}
		}
	}
	if hits, err := s.Find([]byte(filler + "DEBUG=false production name,mail,phone " + strings.Repeat("-", 99))); len(hits) > 0 || err != nil {
		t.Error("found what is not there: ", hits, err)
	}
}

func TestPlainFilesAreRefusedAndBoundsHold(t *testing.T) {
	b := NewBuilder(nil)
	for _, text := range []string{"1234\n", "password", "20250101", strings.Repeat("\x00", 100), "--------------"} {
		if err := b.Add(Source{Secret, "x", ""}, strings.NewReader(text)); !errors.Is(err, ErrTooPlain) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if err := b.Add(Source{Secret, "x", ""}, strings.NewReader(" \n")); err != nil {
		t.Error(err)
	}
	big := make([]byte, MaxBytes+1)
	if err := b.Add(Source{Secret, "big", ""}, bytes.NewReader(big)); !errors.Is(err, ErrTooMuch) {
		t.Error(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(big)
	if err := b.Add(Source{"private", "big", "1"}, bytes.NewReader(big[:MaxBytes-64])); err != nil {
		t.Error(err)
	}
	if !b.Has(Source{"private", "big", "1"}) || b.Has(Source{"private", "big", "2"}) {
		t.Error("which version was read is not known")
	}
	if err := b.Add(Source{"private", "more", ""}, bytes.NewReader(big[1000:2000])); !errors.Is(err, ErrTooMuch) {
		t.Error(err)
	}
}

// A search has a budget for compressed data: it reads as much as that, and refuses one byte more. The budget of a real
// search takes too long to use up here.
func TestCompressedDataIsBounded(t *testing.T) {
	s := setOf(t, map[string]string{"secret:prod.env": env})
	const most = 3 * chunk
	text := packed(t, strings.Repeat("\x00", most), "gzip")
	for _, c := range []struct {
		left int64
		want error
	}{{most, nil}, {most - 1, ErrTooLarge}} {
		one := s.newSearch()
		if one.left != maxPacked {
			t.Errorf("the budget is %d, not %d", one.left, maxPacked)
		}
		one.left = c.left
		one.stream(strings.NewReader(text), "", 0, func(at int64) io.Reader { return strings.NewReader(text[at:]) })
		if hits, err := one.result(); len(hits) > 0 || !errors.Is(err, c.want) {
			t.Errorf("%d bytes with a budget of %d: %v, %v", most, c.left, hits, err)
		}
		if one.left != 0 {
			t.Errorf("%d bytes of a budget of %d are left", one.left, c.left)
		}
	}
}

func TestWithoutLeavesWhatIsNew(t *testing.T) {
	s := setOf(t, map[string]string{"secret:prod.env": env})
	before, _ := s.Find([]byte("x=sk_live_9fKq27+xPz/41"))
	after, _ := s.Find([]byte("x=sk_live_9fKq27+xPz/41 y=postgres://shop:tr0ub4dor&3@db.internal:5432/shop"))
	rest := Without(after, before)
	if len(before) == 0 || len(rest) == 0 || Without(before, after) != nil {
		t.Errorf("%v, %v, %v", before, after, rest)
	}
	if rest[0].Line != 2 || !strings.Contains(rest[0].String(), "line 2 of prod.env, which is labelled secret") {
		t.Error(rest[0])
	}
}

func TestSecretComesBeforePrivate(t *testing.T) {
	text := "one line of the shared text\n0123456789abcdefghijklmnopqrstuvwxyz and more of the same"
	s := setOf(t, map[string]string{"private:b": text, "secret:a": text})
	hits, err := s.Find([]byte(text))
	if err != nil || len(hits) == 0 || hits[0].Source.Kind != Secret {
		t.Error(hits, err)
	}
}

// TestCompressedDataIsReadToItsEnd: an archive in base64, or in another archive, is longer than a chunk, and the secret
// is at its end.
func TestCompressedDataIsReadToItsEnd(t *testing.T) {
	s := setOf(t, map[string]string{"secret:prod.env": env})
	random := make([]byte, chunk*3/2)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	whole := packed(t, string(random)+env, "gzip")
	for how, text := range map[string]string{
		"base64":             base64.StdEncoding.EncodeToString([]byte(whole)),
		"base64 in JSON":     `{"archive":` + quoted(base64.StdEncoding.EncodeToString([]byte(whole))) + `}`,
		"gzip":               packed(t, whole, "gzip"),
		"zip":                packed(t, whole, "zip"),
		"across two chunks":  packed(t, string(random[:chunk-100])+packed(t, string(random[:1000])+env, "gzip")+string(random), "gzip"),
		"its header in two":  packed(t, string(random[:chunk-5])+packed(t, env, "gzip")+string(random), "gzip"),
		"a row of them":      packed(t, strings.Repeat(packed(t, string(random[:300<<10]), "gzip"), 8)+packed(t, env, "gzip"), "gzip"),
		"base64 of two":      base64.StdEncoding.EncodeToString([]byte(packed(t, whole, "gzip"))),
		"base64 across them": strings.Repeat("fox ", chunk/4-300) + base64.StdEncoding.EncodeToString([]byte(packed(t, string(random[:20_000])+env, "gzip"))),
	} {
		if hits, err := s.Find([]byte(text)); err != nil || len(hits) == 0 {
			t.Errorf("%s: %v, %v", how, hits, err)
		}
	}
	one := s.newSearch()
	one.most = chunk + overlap
	one.stream(strings.NewReader(base64.StdEncoding.EncodeToString([]byte(whole))), "", 0, nil)
	if hits, err := one.result(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a text that is longer than what can be searched: %v, %v", hits, err)
	}
}

// TestMuchPrivateContentHidesNoSecret: a person may allow private content, and a file with a label may have that of its
// own. So a secret is found, or an error returned, whatever is before it.
func TestMuchPrivateContentHidesNoSecret(t *testing.T) {
	rows := ""
	for i := range 2 * maxHits {
		rows += fmt.Sprintf("Customer %d,%d@example.org,+1 555 %04d\n", i, i, i)
	}
	s := setOf(t, map[string]string{"secret:prod.env": env, "private:rows.csv": rows})
	secret := "x=sk_live_9fKq27+xPz/41"
	before, err := s.Find([]byte(rows))
	if err != nil || len(before) != maxHits {
		t.Error(len(before), err)
	}
	hits, err := s.Find([]byte(rows + secret))
	if err != nil || hits[0].Source.Kind != Secret || Without(hits, before)[0].Source.Kind != Secret {
		t.Errorf("a secret after much private content: %v, %v", hits[0], err)
	}
	bomb := strings.Repeat(packed(t, "x", "gzip"), maxPacks+1)
	row, _, _ := strings.Cut(rows, "\n")
	filler := strings.Repeat("the quick brown fox ", chunk/20)
	if hits, err := s.Find([]byte(row + "\n" + bomb + filler + secret)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a secret after much compressed data: %v, %v", hits, err)
	}
	if hits, err := s.Find([]byte(secret + bomb)); err != nil || hits[0].Source.Kind != Secret {
		t.Errorf("a secret before much compressed data: %v, %v", hits, err)
	}
	s = setOf(t, map[string]string{"private:rows.csv": rows})
	if hits, err := s.Find([]byte(row + "\n" + bomb)); err != nil || len(hits) == 0 {
		t.Errorf("private content without secrets: %v, %v", hits, err)
	}
}

func FuzzFind(f *testing.F) {
	b := NewBuilder(nil)
	if err := b.Add(Source{Secret, "x", ""}, strings.NewReader(env)); err != nil {
		f.Fatal(err)
	}
	s := b.Set()
	f.Add([]byte(`\u00e9\ud83d\ude00\x4`))
	f.Add([]byte("%4%41+%zz\x1f\x8b\x08PK\x03\x04"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = s.Find(text) })
}

func BenchmarkFind(b *testing.B) {
	build := NewBuilder(nil)
	if err := build.Add(Source{Secret, "x", ""}, strings.NewReader(env)); err != nil {
		b.Fatal(err)
	}
	line := func(i int, text string) string { return fmt.Sprintf("2026-11-27 %06d %s\n", i, text) }
	var labelled, other strings.Builder
	for i := range 40_000 {
		labelled.WriteString(line(i, "paid a"))
		other.WriteString(line(i, "sent to b"))
	}
	if err := build.Add(Source{"private", "day.log", ""}, strings.NewReader(labelled.String())); err != nil {
		b.Fatal(err)
	}
	s := build.Set()
	for name, text := range map[string][]byte{
		"prose":                               []byte(strings.Repeat("the quick brown fox jumps over the lazy dog. ", 1<<20/45)),
		"lines that begin like labelled ones": []byte(other.String()),
		"JSON":                                []byte(strings.Repeat(`{"text":"the quick\nbrown fox","id":"a8f7e6d5c4b3a2"},`, 1<<20/54)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if hits, err := s.Find(text); hits != nil || err != nil {
					b.Fatal(hits, err)
				}
			}
		})
	}
}
