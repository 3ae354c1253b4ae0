package detached

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
)

// Copy writes the stored output of the detached command id of the sandbox called name to w; dir is the
// sandbox's logs directory. While more returns true, Copy waits for further output, until ctx ends.
func Copy(ctx context.Context, w io.Writer, name, dir string, id int, more func() (bool, error)) error {
	path := outputPath(dir, id)
	if err := copyFile(w, strings.TrimSuffix(path, ".log")+".old"); err != nil {
		return err
	}
	var f *os.File
	defer func() { f.Close() }()
	for {
		follow, err := more()
		if err != nil {
			return err
		}
		last := !follow || ctx.Err() != nil
		next, err := os.Open(path)
		if err != nil {
			return errs.With("reading the logs of", name, err)
		}
		if f != nil {
			if _, err := io.Copy(w, f); err != nil { // the rest of a file that was full
				return errors.Join(err, next.Close())
			}
		}
		if sameOpenFile(f, next) {
			next.Close()
		} else {
			f.Close()
			f = next
		}
		if _, err := io.Copy(w, f); err != nil || last {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func sameOpenFile(a, b *os.File) bool {
	x, err := a.Stat() // an error also for nil
	y, berr := b.Stat()
	return err == nil && berr == nil && os.SameFile(x, y)
}
