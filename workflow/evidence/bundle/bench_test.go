package bundle

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
)

// largeBundle returns a bundle of n records, most of them network decisions and commands.
func largeBundle(t testing.TB, n int) []byte {
	s := newSession(t, hostKey(t), "s1")
	s.begin()
	for i := 0; len(s.records) < n-2; i++ {
		if i%3 == 0 {
			s.command(fmt.Sprintf("r%d", i))
			continue
		}
		s.add(events.NetworkRefused, map[string]any{"host": fmt.Sprintf("h%d.example.org", i%50), "port": 443, "reason": "not allowed by the policy"})
	}
	s.changes("/w/file")
	s.end()
	return s.text()
}

// BenchmarkVerify measures the verification of 100,000 records, and SHA-256 of the same bytes.
func BenchmarkVerify(b *testing.B) {
	text := largeBundle(b, 100_000)
	b.Run("verify", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if r := Verify(text, Options{}); r.Root == "" {
				b.Fatal(r)
			}
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			sha256.Sum256(text)
		}
	})
}
