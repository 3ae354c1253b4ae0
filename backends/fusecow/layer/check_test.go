//go:build linux

package layer_test

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
)

// checked returns a closed tree of two layers. The lower layer has a, and b with a hard link c; the top one has
// changed all of them and created d.
func checked(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.write(b.lower+"/a", "below")
	b.up()
	b.write(b.mount+"/b", "of the first layer")
	b.must(os.Link(b.mount+"/b", b.mount+"/c"))
	b.freeze()
	b.write(b.mount+"/a", "of the second layer")
	b.write(b.mount+"/d", "of the second layer")
	b.must(os.Rename(b.mount+"/c", b.mount+"/e"))
	b.down()
	return b
}

func (b *bench) check(repair bool) []layer.Problem {
	b.Helper()
	found, err := layer.Check(b.options(), repair)
	b.must(err)
	return found
}

// content returns the content file of a layer that ends with a text.
func (b *bench) content(path, text string) string {
	b.Helper()
	all, err := filepath.Glob(path + "/data/*/*")
	b.must(err)
	for _, file := range all {
		if got, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(got), text) {
			return file
		}
	}
	b.Fatalf("no content of %s ends with %q", path, text)
	return ""
}

// frame appends records to a log.
func (b *bench) frame(path string, records []byte) {
	b.Helper()
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(records)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(records, crc32.MakeTable(crc32.Castagnoli)))
	log, err := os.OpenFile(path+"/log", os.O_WRONLY|os.O_APPEND, 0)
	b.must(err)
	_, err = log.Write(append(head, records...))
	b.must(err)
	b.must(log.Close())
}

func TestCheckFindsNoProblemInGoodLayers(t *testing.T) {
	b := checked(t)
	for range 2 {
		for _, p := range b.check(true) {
			t.Error(p)
		}
		b.up()
		b.write(b.mount+"/more", "and then it was killed")
		b.kill()
	}
}

// TestCheckFindsDamageAndRepairsTheTopLayer does one kind of damage at a time.
func TestCheckFindsDamageAndRepairsTheTopLayer(t *testing.T) {
	for _, c := range []struct {
		name, want string
		mended     bool
		spoil      func(b *bench, first, top string)
	}{
		{"content gone", "the content of d is missing", true, func(b *bench, _, top string) {
			b.must(os.Remove(b.content(top, "second layer")))
			b.must(os.Remove(b.content(top, "second layer")))
		}},
		{"content cut", " bytes, but the log says 19", true, func(b *bench, _, top string) {
			b.must(os.Truncate(b.content(top, "second layer"), 3))
		}},
		{"content of nobody", "content without an inode", true, func(b *bench, _, top string) {
			b.must(os.MkdirAll(top+"/data/1a", 0o700))
			b.write(top+"/data/1a/123456", "of nobody")
		}},
		{"a name too few", " has 1 names, but the log says 2", true, func(b *bench, _, top string) {
			b.frame(top, append([]byte("e\x01\x01e"), 0)) // the root, "e", a whiteout
		}},
		{"a name of nothing", "the log has an invalid record at byte", true, func(b *bench, _, top string) {
			b.frame(top, append([]byte("e\x01\x01z"), 0x7f)) // the root, "z", an inode that does not exist
		}},
		{"a byte of the log", "the log is damaged from byte", true, func(b *bench, _, top string) {
			log, err := os.ReadFile(top + "/log")
			b.must(err)
			log[len(log)/2] ^= 0x55
			b.must(os.WriteFile(top+"/log", log, 0o600))
		}},
		{"frozen content gone", "the content of b is missing", false, func(b *bench, first, _ string) {
			b.must(os.Remove(b.content(first, "first layer")))
		}},
		{"a frozen log cut", "the log ends in the middle of a frame", false, func(b *bench, first, _ string) {
			st, err := os.Stat(first + "/log")
			b.must(err)
			b.must(os.Truncate(first+"/log", st.Size()-1))
		}},
		{"no layer", "the layer is missing", false, func(b *bench, first, _ string) {
			b.must(os.RemoveAll(first))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := checked(t)
			c.spoil(b, b.layers[0], b.layers[1])
			found := b.check(false)
			if !mentions(found, c.want, false) {
				t.Errorf("found %+v, want %q", found, c.want)
			}
			if repaired := b.check(true); !mentions(repaired, c.want, c.mended) {
				t.Errorf("repaired %+v, want %q, mended: %t", repaired, c.want, c.mended)
			}
			if text := "of nobody"; c.name == "content "+text {
				b.puts(text)
			}
			if left := b.check(false); c.mended && len(left) > 0 {
				t.Errorf("after that there is %+v", left)
			}
			if c.mended {
				b.up()
				b.write(b.mount+"/new", "it takes changes")
				b.down()
			}
		})
	}
}

// tells reports whether one of the problems contains a text.
func mentions(found []layer.Problem, text string, mended bool) bool {
	for _, p := range found {
		if strings.Contains(p.What, text) && p.Mended == mended {
			return true
		}
	}
	return false
}
