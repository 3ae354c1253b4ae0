package vfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

func TestFilesAreReadWhole(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/file"
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		if err := os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
		if data, err := ReadFile(path); err != nil || len(data) != size {
			t.Errorf("%d bytes of %d, %v", len(data), size, err)
		}
	}
	if data, err := ReadFile("/proc/self/mountinfo"); err != nil || len(data) == 0 {
		t.Errorf("the kernel's file: %d bytes, %v", len(data), err)
	}
	if err := WriteFile(path+"2", "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := WriteFile(path, "y"); err != nil {
		t.Error(err)
	}
	if data, err := ReadFile(path); err != nil || data[0] != 'y' {
		t.Errorf("after a write: %q, %v", data[:1], err)
	}
	var at *os.PathError
	if _, err := ReadFile(t.TempDir()); !errors.As(err, &at) {
		t.Errorf("a directory: %v", err)
	}
}

func TestAtMostTheFirstBytesAreRead(t *testing.T) {
	t.Parallel()
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := strings.Repeat("0123456789", 2000)
	if _, err := f.WriteString(text); err != nil { // the offset is at the end from then on
		t.Fatal(err)
	}
	for _, most := range []int{0, 1, 4096, 4097, 19_999, 20_000, 1 << 20} {
		if data, err := ReadFD(int(f.Fd()), int64(most)); err != nil || string(data) != text[:min(most, len(text))] {
			t.Errorf("at most %d: %d bytes, %v", most, len(data), err)
		}
	}
}
