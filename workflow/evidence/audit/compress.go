package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
)

// zipped ends the name of a closed segment that is compressed, behind the name that it had.
const zipped = ".gz"

// A source is an open file of an evidence log, or the content of a compressed one.
type source interface {
	io.ReaderAt
	// Name returns the path of the file.
	Name() string
}

// An unzipped is the content of a compressed segment of an evidence log.
type unzipped struct {
	*bytes.Reader
	path string
}

// Name returns the path of the compressed file.
func (u unzipped) Name() string { return u.path }

// Compress compresses the closed segments of the evidence log that are not, each to a tenth or less of its size on
// disk. Readers find the same lines. A process that is killed leaves a segment as it was, or compressed, or both, of
// which the next call removes one, and a file that was never finished. Cost: about half a second of processor time for
// each segment of 64 MiB.
func (l *Log) Compress() error {
	if err := l.removeStaged(); err != nil {
		return errs.With("compressing the record of "+l.sandbox, l.dir, err)
	}
	newest, err := os.Stat(filepath.Join(l.dir, LogName))
	if err != nil {
		return errs.With("compressing the record of "+l.sandbox, l.dir, err)
	}
	all, err := l.closed(math.MaxInt64)
	if err != nil {
		return err
	}
	for _, s := range all {
		if filepath.Ext(s.path) == zipped {
			continue
		}
		if st, err := os.Stat(s.path); err != nil || os.SameFile(st, newest) {
			continue // another process has compressed or removed it, or it is not closed yet
		}
		if err := l.compress(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.With("compressing the record of "+l.sandbox, s.path, err)
		}
	}
	return nil
}

// compress replaces the closed segment at path by a compressed file of the same lines.
func (l *Log) compress(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := l.replace(path+zipped, func(w io.Writer) error { return zip(w, text) }); err != nil {
		return err
	}
	l.passed("renamed")
	return os.Remove(path)
}

func zip(w io.Writer, text []byte) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(text)
	}
	if err == nil {
		err = z.Close()
	}
	return err
}

// unzip returns the content of the compressed segment of the evidence log at path.
func unzip(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errs.New("reading a compressed record", path, errs.ErrCorrupt, err.Error())
	}
	text, err := io.ReadAll(io.LimitReader(z, maxLog))
	if err != nil {
		return nil, errs.New("reading a compressed record", path, errs.ErrCorrupt, err.Error())
	}
	return text, nil
}

// contentSize returns the size in bytes of the lines in the segment at path, for which st describes the file. Of a
// compressed file, the last four bytes say it.
func contentSize(path string, st os.FileInfo) (int64, error) {
	if filepath.Ext(path) != zipped || st.Size() < 4 {
		return st.Size(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var size [4]byte
	_, err = f.ReadAt(size[:], st.Size()-4)
	return int64(binary.LittleEndian.Uint32(size[:])), err
}

// Rotated reports whether this process has closed a file of the evidence log since the last call.
func (l *Log) Rotated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rotated := l.rotated
	l.rotated = false
	return rotated
}
