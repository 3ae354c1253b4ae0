package stream_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/transfer/stream"
	"golang.org/x/sys/unix"
)

// content returns 700,000 bytes without repetition.
func content() []byte {
	b := make([]byte, 700_000)
	for i := range b {
		b[i] = byte(i * i >> 7)
	}
	return b
}

// partial receives some bytes of a stream and is then interrupted.
func partial(t *testing.T, dir string, l stream.Header, b []byte) stream.Partial {
	t.Helper()
	k, err := stream.OpenPartial(dir, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(b); err != nil {
		t.Fatal(err)
	}
	n, err := k.Close()
	if err != nil {
		t.Fatal(err)
	}
	listed, err := stream.ListPartial(dir)
	if err != nil || len(listed) != 1 || listed[0].Bytes != n {
		t.Fatalf("%d bytes are stored, and listed %+v, %v", n, listed, err)
	}
	return listed[0]
}

func onFrom(l stream.Header, b stream.Partial) stream.Header {
	l.From, l.Before = b.Bytes, b.Sum
	return l
}

func TestInterruptedTransferResumes(t *testing.T) {
	dir, all := filepath.Join(t.TempDir(), "begun"), content()
	had := partial(t, dir, label(), all[:300_000])
	if had.Bytes != 300_000 || had.ID != "abc-s1" || had.Base != "abc-s0" {
		t.Errorf("kept %+v", had)
	}
	if again, ok := stream.ParsePartial(had.String()); !ok || again != had {
		t.Errorf("%q is read as %+v", had, again)
	}
	had = partial(t, dir, onFrom(label(), had), all[300_000:300_007])
	listed, err := stream.ListPartial(dir)
	if err != nil || len(listed) != 1 || listed[0] != had {
		t.Errorf("listed %+v, %v: want %+v", listed, err, had)
	}
	var rest bytes.Buffer
	skip := stream.NewSkipper(had, func() (io.Writer, error) { return &rest, nil })
	for part := all; len(part) > 0; part = part[min(len(part), 1000):] {
		if _, err := skip.Write(part[:min(len(part), 1000)]); err != nil {
			t.Fatal(err)
		}
	}
	k, err := stream.OpenPartial(dir, onFrom(label(), had))
	if err != nil {
		t.Fatal(err)
	}
	first, err := k.Received()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.MultiReader(first, &rest)); err != nil || !bytes.Equal(got, all) {
		t.Errorf("it is %d bytes, %v, and not what was sent", len(got), err)
	}
	if listed, err := stream.ListPartial(dir); err != nil || len(listed) > 0 {
		t.Errorf("listed while it is received: %+v, %v", listed, err)
	}
	if _, err := stream.OpenPartial(dir, label()); !errors.Is(err, errs.ErrBusy) {
		t.Errorf("kept by two at once: %v", err)
	}
	if err := k.Drop(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// A restarted transfer does not truncate the partial file of an earlier one. Received bytes are
// compared with the file, and stored from the first difference on.
func TestRestartDoesNotTruncateThePartialFile(t *testing.T) {
	all := content()
	other := bytes.Clone(all)
	other[300_000]++
	otherBase := label()
	otherBase.Base = ""
	for name, c := range map[string]struct {
		label  stream.Header
		brings []byte
		want   []byte
	}{
		"nothing":                       {label(), nil, all[:600_000]},
		"less":                          {label(), all[:1000], all[:600_000]},
		"more than a frame":             {label(), all[:400_000], all[:600_000]},
		"as much":                       {label(), all[:600_000], all[:600_000]},
		"more":                          {label(), all, all},
		"something else":                {label(), other[:600_001], other[:600_001]},
		"a little of something else":    {label(), other[:300_010], all[:600_000]},
		"to another base":               {otherBase, all, all},
		"a little of it to another one": {otherBase, all[:1000], all[:600_000]},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "begun")
			partial(t, dir, label(), all[:600_000])
			k, err := stream.OpenPartial(dir, c.label)
			if err != nil {
				t.Fatal(err)
			}
			for part := c.brings; len(part) > 0; part = part[min(len(part), 70_001):] {
				if _, err := k.Write(part[:min(len(part), 70_001)]); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := k.Close(); err != nil || n != int64(len(c.want)) {
				t.Errorf("%d bytes are kept, %v: want %d", n, err, len(c.want))
			}
			had, err := stream.ListPartial(dir)
			if err != nil || len(had) != 1 {
				t.Fatalf("listed %+v, %v", had, err)
			}
			l := label()
			l.Base = had[0].Base
			if k, err = stream.OpenPartial(dir, onFrom(l, had[0])); err != nil {
				t.Fatal(err)
			}
			r, err := k.Received()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, c.want) {
				t.Errorf("it is %d bytes, %v, and not the %d", len(got), err, len(c.want))
			}
			if err := k.Drop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The retention time starts with the last attempt.
func TestAttemptRenewsTheTimeOfThePartialFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "begun")
	partial(t, dir, label(), content())
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "abc-s1"), old, old); err != nil {
		t.Fatal(err)
	}
	partial(t, dir, label(), content()[:1000])
	if n, err := stream.DropOlder(dir, time.Now().Add(-time.Minute)); n != 0 || err != nil {
		t.Errorf("%d are removed, %v", n, err)
	}
}

func TestOnlyCompleteFramesAreUsed(t *testing.T) {
	dir, all := filepath.Join(t.TempDir(), "begun"), content()
	file := filepath.Join(dir, "abc-s1")
	partial(t, dir, label(), all)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 10_007 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 4
		torn := append(bytes.Clone(whole[:at]), make([]byte, 5000)...) // as after a power cut
		for _, b := range [][]byte{whole[:at], damaged, torn} {
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := stream.ListPartial(dir)
			if err != nil || len(got) > 1 {
				t.Fatalf("at %d: %+v, %v", at, got, err)
			}
			if len(got) == 0 {
				continue
			}
			k, err := stream.OpenPartial(dir, onFrom(label(), got[0]))
			if err != nil {
				t.Fatal(err)
			}
			r, err := k.Received()
			if err != nil {
				t.Fatal(err)
			}
			if have, err := io.ReadAll(r); err != nil || !bytes.HasPrefix(all, have) || int64(len(have)) != got[0].Bytes {
				t.Errorf("at %d: %d bytes that are no beginning, %v", at, len(have), err)
			}
			if _, err := k.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestDifferentStreamDoesNotResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "begun")
	had := partial(t, dir, label(), content())
	for name, l := range map[string]stream.Header{
		"another base":   onFrom(stream.Header{ID: "abc-s1", Base: "abc-s2"}, had),
		"another length": onFrom(label(), stream.Partial{Bytes: had.Bytes - 1, Sum: had.Sum}),
		"another sum":    onFrom(label(), stream.Partial{Bytes: had.Bytes, Sum: "00"}),
		"another state":  onFrom(stream.Header{ID: "abc-s7", Base: "abc-s0"}, had),
	} {
		if _, err := stream.OpenPartial(dir, l); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := stream.ListPartial(dir); err != nil || len(got) != 1 || got[0] != had {
		t.Errorf("then it was lost: %+v, %v", got, err)
	}
	skip := stream.NewSkipper(had, func() (io.Writer, error) { return nil, errors.New("begun") })
	other := content()
	other[77]++
	if _, err := skip.Write(other); !errors.Is(err, stream.ErrOtherPrefix) {
		t.Errorf("a stream that begins otherwise: %v", err)
	}
	for _, text := range []string{"abc-s1", "abc-s1::9:", "abc/s1::9:" + had.Sum, "abc-s1:../x:9:" + had.Sum, "abc-s1::-9:" + had.Sum} {
		if b, ok := stream.ParsePartial(text); ok {
			t.Errorf("%q is read as %+v", text, b)
		}
	}
}

func TestOldPartialFilesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "begun")
	if n, err := stream.DropOlder(dir, time.Now()); n != 0 || err != nil {
		t.Errorf("of nothing: %d, %v", n, err)
	}
	partial(t, dir, label(), content())
	if n, err := stream.DropOlder(dir, time.Now().Add(-time.Minute)); n != 0 || err != nil {
		t.Errorf("of what is new: %d, %v", n, err)
	}
	if n, err := stream.DropOlder(dir, time.Now().Add(time.Minute)); n != 1 || err != nil {
		t.Errorf("of what is old: %d, %v", n, err)
	}
}

// The state directory and the sandboxes share a disk.
func TestPartialFileIsEmptiedOnAFullDisk(t *testing.T) {
	dir := filepath.Join(small(t), "begun")
	k, err := stream.OpenPartial(dir, label())
	if err != nil {
		t.Fatal(err)
	}
	spaceIsFreed(t, dir, k)
}

func TestEarlierPartialFileIsEmptiedOnAFullDisk(t *testing.T) {
	disk := small(t)
	dir, other := filepath.Join(disk, "begun"), filepath.Join(disk, "other")
	partial(t, dir, label(), content())
	if err := os.WriteFile(other, make([]byte, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := stream.OpenPartial(dir, label())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(content()[:1000]); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "abc-s1")); err != nil || info.Size() > 0 {
		t.Errorf("%v, %v: it takes room still", info, err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	spaceIsFreed(t, dir, k)
}

// small returns a directory on a disk of 24 MB.
func small(t *testing.T) string {
	t.Helper()
	treetest.NeedRoot(t)
	disk := treetest.Dir(t)
	if err := unix.Mount("snapfs-test", disk, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// spaceIsFreed checks that a stream too large for a small disk leaves no partial file there.
func spaceIsFreed(t *testing.T, dir string, k *stream.PartialFile) {
	t.Helper()
	for range 40 {
		if _, err := k.Write(content()); err != nil {
			t.Fatal(err)
		}
	}
	if fs, err := mount.FilesystemOf(dir); err != nil || fs.Avail < 23<<20 {
		t.Errorf("%v are left for what is received, %v", snapshot.Bytes(fs.Avail), err)
	}
	if n, err := k.Close(); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%d bytes are kept, %v", n, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// Foreign files are neither read nor removed, and a pipe does not block. Partial files torn by a
// power loss do not count as foreign.
func TestForeignFilesAreLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "begun")
	had := partial(t, dir, label(), content()[:300_000])
	at := func(name string) string { return filepath.Join(dir, name) }
	strange := []string{at("0-directory"), at("0-file"), at("0-link"), at("0-pipe"), at("Not_an_id")}
	err := errors.Join(
		os.Mkdir(strange[0], 0o700), os.WriteFile(strange[1], []byte("of somebody"), 0o600), os.Symlink("abc-s1", strange[2]),
		unix.Mkfifo(strange[3], 0o600), os.WriteFile(strange[4], nil, 0o600),
		os.WriteFile(at("abc-s7"), []byte("snapfs par\x00\x00"), 0o600), os.WriteFile(at("abc-s8"), make([]byte, 4096), 0o600), os.WriteFile(at("abc-s9"), nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Unknown(dir); err != nil || !slices.Equal(got, strange) {
		t.Errorf("strange are %q, %v", got, err)
	}
	if got, err := stream.ListPartial(dir); err != nil || !slices.Equal(got, []stream.Partial{had}) {
		t.Errorf("kept are %+v, %v", got, err)
	}
	other := label()
	other.ID = "0-file"
	if _, err := stream.OpenPartial(dir, other); err == nil {
		t.Error("a foreign file was used as a partial file")
	}
	if n, err := stream.DropOlder(dir, time.Now().Add(time.Hour)); n != 4 || err != nil {
		t.Errorf("%d are removed, %v", n, err)
	}
	for _, path := range strange {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if got, err := os.ReadFile(strange[1]); err != nil || string(got) != "of somebody" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if got, err := stream.Unknown(strange[1]); err != nil || !slices.Equal(got, strange[1:2]) {
		t.Errorf("in the place of the directory is %q, %v", got, err)
	}
	if got, err := stream.ListPartial(strange[1]); err != nil || len(got) > 0 {
		t.Errorf("a file keeps %+v, %v", got, err)
	}
}
