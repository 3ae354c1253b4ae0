package sendstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// words write a stream.
type words func(s *Writer)

func streamOf(w words) []byte {
	var b bytes.Buffer
	s := NewWriter(&b, false)
	w(s)
	_ = s.End() // a buffer takes everything
	return b.Bytes()
}

func applyTo(t testing.TB, dir string, b []byte) error {
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return Apply(context.Background(), root, bytes.NewReader(b), Options{})
}

func statOf(mode uint32) *vfs.Stat { return &vfs.Stat{Mode: mode} }

// Each case is a stream of an attacker that tries to reach the directory outside.
func TestNoStreamLeavesItsDirectory(t *testing.T) {
	for name, w := range map[string]words{
		"through ..": func(s *Writer) { s.Make("../new", statOf(unix.S_IFREG), "") },
		"through .. inside": func(s *Writer) {
			s.Make("d", statOf(unix.S_IFDIR), "")
			s.Make("d/../../new", statOf(unix.S_IFREG), "")
		},
		"an absolute path": func(s *Writer) { s.Make("/outside/new", statOf(unix.S_IFREG), "") },
		"a link as directory": func(s *Writer) {
			s.Make("l", statOf(unix.S_IFLNK), "../outside")
			s.Make("l/new", statOf(unix.S_IFREG), "")
		},
		"a link as file":     func(s *Writer) { s.Make("l", statOf(unix.S_IFLNK), "../outside/file"); s.Write("l", 0, []byte("x")) },
		"a link to truncate": func(s *Writer) { s.Make("l", statOf(unix.S_IFLNK), "../outside/file"); s.Truncate("l", 0) },
		"a link's mode": func(s *Writer) {
			s.Make("l", statOf(unix.S_IFLNK), "../outside/file")
			s.do(Chmod, part{aPath, "l"}, number(aMode, 0o777))
			s.Make("l", statOf(unix.S_IFREG), "")
		},
		"a link's attribute": func(s *Writer) {
			s.Make("l", statOf(unix.S_IFLNK), "../outside/file")
			s.SetXattr("l", "user.x", "x")
			s.Make("l", statOf(unix.S_IFREG), "")
		},
		"a link put in the place of a directory": func(s *Writer) {
			s.Make("d", statOf(unix.S_IFDIR), "")
			s.Make("d/f", statOf(unix.S_IFREG), "")
			s.Write("d/f", 0, []byte("x"))
			s.Rename("d", "e")
			s.Make("d", statOf(unix.S_IFLNK), "../outside")
			s.Write("d/file", 0, []byte("x"))
		},
		"another's name": func(s *Writer) { s.Link("mine", "../outside/file") },
		"a name moved out": func(s *Writer) {
			s.Make("f", statOf(unix.S_IFREG), "")
			s.Rename("f", "../outside/f")
		},
		"a pipe to wait at": func(s *Writer) { s.Make("p", statOf(unix.S_IFIFO), ""); s.Write("p", 0, []byte("x")) },
		"a part of another file": func(s *Writer) {
			s.Make("f", statOf(unix.S_IFREG), "")
			var none [16]byte
			s.do(Clone, part{aPath, "f"}, number(aOffset, 0), number(aCloneLen, 4), number(aCloneFrom, 0), part{aCloneUUID, string(none[:])}, part{aClonePath, "../outside/file"})
		},
		"the root's name": func(s *Writer) { s.Remove("", true) },
		"a name with NUL": func(s *Writer) { s.Make("a\x00b", statOf(unix.S_IFREG), "") },
		"no moment":       func(s *Writer) { s.Times("", &vfs.Stat{MTime: vfs.Timestamp{Nsec: 1e9}}) },
		"a second tree":   func(s *Writer) { s.do(Subvol, part{aUUID, ""}) },
		"beyond any file": func(s *Writer) { s.Make("f", statOf(unix.S_IFREG), ""); s.Write("f", -1, []byte("x")) },
		"unknown":         func(s *Writer) { s.do(77) },
		"of a later form": func(s *Writer) { s.do(22) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			for _, dir := range []string{"in", "outside"} {
				if err := os.Mkdir(filepath.Join(top, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(top, "outside/file"), []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := treetest.Manifest(t, filepath.Join(top, "outside"), treetest.Options{})
			err := applyTo(t, filepath.Join(top, "in"), streamOf(w))
			if err == nil {
				t.Error("the stream is applied")
			}
			if got := treetest.Manifest(t, filepath.Join(top, "outside"), treetest.Options{}); got != before {
				t.Errorf("the outside directory was\n%sand is\n%s", before, got)
			}
			if names, _ := os.ReadDir(top); len(names) != 2 {
				t.Errorf("the parent directory has %v", names)
			}
		})
	}
}

// Kernels before 6.2 make a new inode in the root, and rename it into place.
func TestTheRootKeepsTheTimesOfTheStream(t *testing.T) {
	moved := func(s *Writer) {
		s.Make("o257-7-0", statOf(unix.S_IFREG), "")
		s.Rename("o257-7-0", "d/f")
		s.Times("d", &vfs.Stat{})
	}
	dir := t.TempDir()
	given := vfs.Timestamp{Sec: 1000, Nsec: 1}
	is := func(when string) {
		t.Helper()
		if st, err := vfs.Lstat(unix.AT_FDCWD, dir); err != nil || st.MTime != given {
			t.Errorf("%s the mtime of the root is %+v, %v; want %+v", when, st.MTime, err, given)
		}
	}
	err := applyTo(t, dir, streamOf(func(s *Writer) {
		s.Make("d", statOf(unix.S_IFDIR), "")
		s.Times("", &vfs.Stat{MTime: given})
		moved(s)
	}))
	if err != nil {
		t.Fatal(err)
	}
	is("made")
	var b bytes.Buffer
	s := NewWriter(&b, true)
	s.Remove("d/f", false)
	moved(s)
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	root := treetest.Open(t, dir)
	if err := Apply(t.Context(), root, &b, Options{OnBase: true}); err != nil {
		t.Fatal(err)
	}
	is("changed")
}

func TestADamagedStreamIsCorrupt(t *testing.T) {
	good := streamOf(func(s *Writer) {
		s.Make("f", statOf(unix.S_IFREG), "")
		s.Write("f", 0, []byte("text"))
		s.Times("f", &vfs.Stat{})
	})
	if err := applyTo(t, t.TempDir(), good); err != nil {
		t.Fatal(err)
	}
	for at := range good {
		if err := applyTo(t, t.TempDir(), good[:at]); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("cut off at %d: %v", at, err)
		}
		bad := bytes.Clone(good)
		bad[at] ^= 4
		if err := applyTo(t, t.TempDir(), bad); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("with byte %d changed: %v", at, err)
		}
	}
	if err := applyTo(t, t.TempDir(), append(bytes.Clone(good), 0)); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("with a byte more: %v", err)
	}
}

func TestAnErrorAtTheEndOfTheReaderIsReturned(t *testing.T) {
	good := streamOf(func(*Writer) {})
	root := treetest.Open(t, t.TempDir())
	found := errors.New("the whole is not what was sent")
	err := Apply(t.Context(), root, io.MultiReader(bytes.NewReader(good), failing{found}), Options{})
	if !errors.Is(err, found) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzApply checks that no stream changes anything beside the directory. It corrects the checksums,
// because otherwise a fuzzer would not get far.
func FuzzApply(f *testing.F) {
	f.Add(streamOf(func(s *Writer) {
		s.Make("d", statOf(unix.S_IFDIR), "")
		s.Make("d/f", statOf(unix.S_IFREG), "")
		s.Write("d/f", 3, []byte("text"))
		s.Make("l", statOf(unix.S_IFLNK), "../outside")
		s.Link("d/g", "d/f")
		s.Rename("d", "e")
		s.SetXattr("e", "user.x", "y")
		s.Own("e", statOf(unix.S_IFDIR|0o711))
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		if err := errors.Join(os.Mkdir(top+"/in", 0o755), os.Mkdir(top+"/outside", 0o755)); err != nil {
			t.Fatal(err)
		}
		_ = applyTo(t, top+"/in", withChecksums(b)) // errors do not matter
		if in, err := os.ReadDir(top + "/outside"); err != nil || len(in) > 0 {
			t.Errorf("outside holds %v, %v", in, err)
		}
		if in, err := os.ReadDir(top); err != nil || len(in) != 2 {
			t.Errorf("the parent directory has %v, %v", in, err)
		}
	})
}

// withChecksums corrects the checksums of a stream's commands.
func withChecksums(b []byte) []byte {
	b = bytes.Clone(b)
	for at := len(magic) + 4; at+head <= len(b); {
		n := int(uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16)
		b[at+3] = 0
		clear(b[at+6 : at+head])
		end := min(at+head+n, len(b))
		crc := sum(0, b[at:end])
		b[at+6], b[at+7], b[at+8], b[at+9] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
		at = end
	}
	return b
}

// A new inode in a directory with a default ACL has only the ACL of the stream.
func TestANewInodeInheritsNoACL(t *testing.T) {
	dir := treetest.Dir(t)
	entry := func(tag, perm byte, id string) string { return string([]byte{tag, 0, perm, 0}) + id }
	const none, user = "\xff\xff\xff\xff", "\x07\x00\x00\x00"
	list := "\x02\x00\x00\x00" + entry(0x01, 7, none) + entry(0x02, 5, user) + entry(0x04, 5, none) + entry(0x10, 7, none) + entry(0x20, 5, none)
	err := applyTo(t, dir, streamOf(func(s *Writer) {
		s.SetXattr("", "system.posix_acl_default", list)
		for name, kind := range map[string]uint32{"file": unix.S_IFREG, "dir": unix.S_IFDIR, "pipe": unix.S_IFIFO, "link": unix.S_IFLNK} {
			s.Make(name, statOf(kind), "to")
		}
		s.Make("with", statOf(unix.S_IFREG), "")
		s.SetXattr("with", "system.posix_acl_access", list)
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"": 1, "file": 0, "dir": 0, "pipe": 0, "link": 0, "with": 1} {
		if has, err := vfs.Xattrs(unix.AT_FDCWD, filepath.Join(dir, name)); err != nil || len(has) != want {
			t.Errorf("%q has %q, %v", name, has, err)
		}
	}
}

// A place exists although no stream made it, and must not obstruct the stream.
func TestAnObstructingPlaceIsRemoved(t *testing.T) {
	for name, w := range map[string]words{
		"for a directory":   func(s *Writer) { s.Make("d", statOf(unix.S_IFDIR), ""); s.Make("d/e", statOf(unix.S_IFREG), "") },
		"for a file":        func(s *Writer) { s.Make("d", statOf(unix.S_IFREG), ""); s.Write("d", 0, []byte("x")) },
		"for what is moved": func(s *Writer) { s.Make("o", statOf(unix.S_IFREG), ""); s.Rename("o", "d") },
		"when it goes":      func(s *Writer) { s.Remove("d", true) },
	} {
		dir := t.TempDir()
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "d/e"), 0o700), os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		root := treetest.Open(t, dir)
		places := []string{"d", "d/e", "d/f"}
		if err := Apply(t.Context(), root, bytes.NewReader(streamOf(w)), Options{Places: places}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "real"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Apply(t.Context(), root, bytes.NewReader(streamOf(func(s *Writer) { s.Make("real", statOf(unix.S_IFREG), "") })), Options{Places: places})
		if !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%s: an entry that is no place was removed: %v", name, err)
		}
	}
}
