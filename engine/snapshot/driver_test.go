package snapshot

import (
	"strings"
	"testing"
)

func TestValidIDRefusesWhateverCouldBeAPath(t *testing.T) {
	for _, id := range []string{"a", "0", "a-b", "s1", strings.Repeat("z", 64)} {
		if !ValidID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{
		"", "-a", ".", "..", "../x", "a/b", "A", "a b", "a\n", "a.b", "ä", "a\x00", strings.Repeat("z", 65),
	} {
		if ValidID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
}

func TestBytesPrintAsAPersonReadsThem(t *testing.T) {
	for b, want := range map[Bytes]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 1 << 40: "1.0 TiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := b.String(); got != want {
			t.Errorf("%d is %q, want %q", int64(b), got, want)
		}
	}
}
