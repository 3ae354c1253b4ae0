package merge_test

import (
	"bytes"
	"testing"

	"github.com/snapfs/snapfs/engine/merge"
)

// Laws for any three texts: if one side equals the base, the result is the other side; if
// both sides are equal, the result is that; swapped sides agree on whether there is a
// conflict; and a result with conflicts contains markers.
func FuzzText(f *testing.F) {
	f.Add([]byte("1\n2\n3\n"), []byte("1\nm\n3\n"), []byte("1\n2\nr\n"))
	f.Add([]byte("a\nb\nc"), []byte("a\n\nc"), []byte("a\nb\nc\n"))
	f.Add([]byte(""), []byte("\r\n"), []byte("\n"))
	f.Add([]byte("\n\n\n\n"), []byte("\n\n"), []byte("\n\nx\n\n\n\n"))
	f.Fuzz(func(t *testing.T, base, mine, real []byte) {
		merged, conflicts := merge.Text(base, mine, real, names)
		swapped, same := merge.Text(base, real, mine, names)
		if (conflicts == 0) != (same == 0) || conflicts == 0 && !bytes.Equal(merged, swapped) {
			t.Errorf("%d conflicts, %d swapped: %q, %q", conflicts, same, merged, swapped)
		}
		if conflicts > 0 && !merge.HasMarkers(merged, names.Mine, names.Real) {
			t.Errorf("no marks in %q", merged)
		}
		for _, c := range []struct{ base, mine, real, want []byte }{
			{base, mine, base, mine}, {base, base, real, real}, {base, mine, mine, mine}, {base, base, base, base},
		} {
			if got, n := merge.Text(c.base, c.mine, c.real, names); n > 0 || !bytes.Equal(got, c.want) {
				t.Errorf("base %q mine %q real %q: %q, %d conflicts", c.base, c.mine, c.real, got, n)
			}
		}
	})
}
