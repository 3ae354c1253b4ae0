package sendstream

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// cloned writes a command that clones a part of the file from to the file to.
func cloned(s *Writer, to string, at int64, from string, off, n int64) {
	var none [16]byte
	s.do(Clone, part{aPath, to}, number(aOffset, uint64(at)), number(aCloneLen, uint64(n)),
		number(aCloneFrom, uint64(off)), part{aCloneUUID, string(none[:])}, part{aClonePath, from})
}

// On a filesystem that cannot share blocks, a short stream could fill the disk with zeros.
func TestAClonedRangeKeepsItsHoles(t *testing.T) {
	const far = 1 << 40
	dir := treetest.Dir(t)
	err := applyTo(t, dir, streamOf(func(s *Writer) {
		s.Make("a", statOf(unix.S_IFREG), "")
		s.Write("a", 1, []byte("text"))
		s.Truncate("a", far)
		s.Write("a", far-9, []byte("the end"))
		s.Make("b", statOf(unix.S_IFREG), "")
		s.Write("b", 0, bytes.Repeat([]byte("x"), 1<<15))
		cloned(s, "b", 1, "a", 0, far)
		cloned(s, "a", 100, "a", 0, 50)
		cloned(s, "a", 200, "a", 0, 0)
	}))
	if err != nil {
		t.Fatal(err)
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(dir, "b"))
	if err != nil || st.Size != far+1 || st.Blocks*512 > 1<<20 {
		t.Errorf("the file has %v and takes %v, %v", snapshot.Bytes(st.Size), snapshot.Bytes(st.Blocks*512), err)
	}
	part := func(name string, at int64, want string) {
		t.Helper()
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, at); err != nil || string(got) != want {
			t.Errorf("%s has %q at %d, %v: want %q", name, got, at, err, want)
		}
	}
	part("b", 0, "x\x00text\x00\x00")
	part("b", 1<<15-1, "\x00\x00")
	part("b", far-8, "the end\x00\x00")
	part("a", 99, "\x00\x00text\x00")
	part("a", 199, "\x00\x00\x00\x00")
}

func TestACloneMustNotOverlapOrPassTheEnd(t *testing.T) {
	for name, at := range map[string]struct{ to, from, n int64 }{"overlapping": {1, 0, 1 << 40}, "beyond": {0, 1 << 40, 2}} {
		err := applyTo(t, treetest.Dir(t), streamOf(func(s *Writer) {
			s.Make("a", statOf(unix.S_IFREG), "")
			s.Truncate("a", 1<<40+1)
			s.Write("a", 0, []byte("x"))
			cloned(s, "a", at.to, "a", at.from, at.n)
		}))
		if !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACloneIsInterrupted(t *testing.T) {
	dir := treetest.Dir(t)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := errors.Join(os.WriteFile(from, bytes.Repeat([]byte("x"), 3*block), 0o600), os.WriteFile(to, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	src := treetest.Open(t, from)
	dst, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	ctx, cancel := context.WithCancel(t.Context())
	blocks := 0
	err = eachData(ctx, src, 0, 3*block, make([]byte, block), func([]byte, int64) error {
		blocks++
		cancel()
		return nil
	})
	if !errors.Is(err, errs.ErrInterrupted) || blocks != 1 {
		t.Errorf("after %d blocks: %v", blocks, err)
	}
	if err := share(ctx, dst, src, 1, 0, 2*block); !errors.Is(err, errs.ErrInterrupted) {
		t.Errorf("sharing ends with %v", err)
	}
}
