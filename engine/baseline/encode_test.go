package baseline

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/snapfs/snapfs/engine/diff"
)

func someKept() map[string]Entry {
	when := time.Unix(-1_600_000_000, 123_456_789)
	file := &diff.Node{
		Mode: 0o644 | fs.ModeSetuid, UID: 1, GID: 1<<32 - 1, Size: 1 << 40, MTime: when, CTime: when.Add(time.Hour), Ino: 1<<64 - 1, NLink: 2,
		Xattrs: map[string]string{"user.a b": "1=2\n\xff\x00", "user.-": "-", "user.empty": ""},
	}
	link := &diff.Node{Mode: 0o777 | fs.ModeSymlink, Target: "to \"a\"\n\xfe -", MTime: when, CTime: when}
	device := &diff.Node{Mode: fs.ModeDevice | 0o600, Rdev: 0x103, Target: "", MTime: time.Unix(1<<40, 0), CTime: when}
	return map[string]Entry{
		"/plain":                {Node: file, Data: strings.Repeat("ab", 32)},
		"/with a \t\n\"\xff\\é": {Node: link, Unknown: "it is \"gone\"\nthere"},
		"/-":                    {},
		"/carried":              {Node: file, Promoted: true, Created: true, Base: &Entry{Base: &Entry{Node: device}}},
		"/made":                 {Created: true, Node: device},
	}
}

func TestWhatIsKeptOfABaseIsReadAsItWasWritten(t *testing.T) {
	k := Baseline{Nodes: someKept()}
	var back Baseline
	if err := back.decode(k.encode()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(k.Nodes, back.Nodes); d != "" {
		t.Error(d)
	}
	if back.bytes != 1<<40 {
		t.Errorf("%d bytes", back.bytes)
	}
}

func TestWhatIsKeptOfABaseIsReadWholeOrNotAtAll(t *testing.T) {
	k := Baseline{Nodes: someKept()}
	data := k.encode()
	for n := range data {
		var back Baseline
		if back.decode(data[:n]) == nil {
			t.Fatalf("%d bytes of %d are read as all", n, len(data))
		}
	}
	for at := range data {
		for bit := range 8 {
			flipped := slices.Clone(data)
			flipped[at] ^= 1 << bit
			var back Baseline
			if back.decode(flipped) == nil {
				t.Fatalf("bit %d of byte %d, %q, is another, and nobody sees it", bit, at, data[at])
			}
		}
	}
	for _, other := range []string{"snapfs kept 4\nend\n", oldHead + "\"/a\" - - -\n" + oldEnd, oldHead + "\"/a\" - - - 1 2\n" + oldEnd, oldHead + "\n" + oldEnd} {
		var back Baseline
		if back.decode([]byte(other)) == nil {
			t.Errorf("%q is read", other)
		}
	}
}

func TestWhatWasKeptWithoutAChecksumIsRead(t *testing.T) {
	k := Baseline{Nodes: someKept()}
	body, err := linesOf(k.encode())
	if err != nil {
		t.Fatal(err)
	}
	var back Baseline
	if err := back.decode([]byte(oldHead + body + oldEnd)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(k.Nodes, back.Nodes); d != "" {
		t.Error(d)
	}
}

func TestAWindowIsReadAsItWasWrittenOrNotAtAll(t *testing.T) {
	w := window{since: time.Unix(1_800_000_000, 123_456_789).UTC(), state: settled + "063820e6", without: []string{"/mnt/a b", "/mnt/\n\xff"}}
	data := w.encode(true)
	back, stored, ok := parseWindow(data)
	if d := cmp.Diff(w, back, cmp.AllowUnexported(window{})); d != "" || !ok || !stored {
		t.Error(d, ok, stored)
	}
	for at := range data {
		for bit := range 8 {
			flipped := slices.Clone(data)
			flipped[at] ^= 1 << bit
			if _, _, ok := parseWindow(flipped); ok {
				t.Fatalf("bit %d of byte %d, %q, is another, and nobody sees it", bit, at, data[at])
			}
		}
		if _, _, ok := parseWindow(data[:at]); ok {
			t.Fatalf("%d bytes of %d are read as all", at, len(data))
		}
	}
	old := window{since: w.since, state: opened, without: []string{"/mnt/disk"}}
	back, stored, ok = parseWindow([]byte("snapfs window 1\n2027-01-15T08:00:00.123456789Z open\n\"/mnt/disk\"\n"))
	if d := cmp.Diff(old, back, cmp.AllowUnexported(window{})); d != "" || !ok || stored {
		t.Error(d, ok, stored)
	}
}

func TestWhatWasKeptInTheFirstFormatIsRead(t *testing.T) {
	const first = `{"format": 1, "nodes": {
		"/text": {"node": {"mode": 420, "uid": 0, "gid": 5, "size": 3, "mtime": "2026-11-20T10:00:00.5Z", "ctime": "2026-11-20T10:00:01Z", "ino": 7, "nlink": 1}, "data": "abc"},
		"/new": {"node": null},
		"\u0000L/8=": {"node": null, "carried": true, "base": {"node": null, "unknown": "why"}}}}`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, baselineJSON), []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := readDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 10, 0, 0, 5e8, time.UTC)
	want := map[string]Entry{
		"/text": {Node: &diff.Node{Mode: 0o644, GID: 5, Size: 3, MTime: at, CTime: at.Add(time.Second / 2), Ino: 7, NLink: 1}, Data: "abc"},
		"/new":  {},
		"/\xff": {Promoted: true, Base: &Entry{Unknown: "why"}},
	}
	if d := cmp.Diff(want, k.Nodes); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(filepath.Join(dir, baselineFile), (&Baseline{}).encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err = readDir(dir); err != nil || len(k.Nodes) != 0 {
		t.Errorf("beside what is written now, the old one still counts: %v, %v", k, err)
	}
}
