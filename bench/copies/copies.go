// Package copies makes copies for package bench to measure with: of the entry of a sandbox in the catalogue, so that
// commands are measured among thousands of sandboxes without the hours that making these takes, of a program, and
// of Go's standard library.
package copies

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Make copies the sandbox called name of a state directory n times, with the data that its backends store
// there under its id. The copies are called name and a number. They are not synced to disk, because they are
// deleted soon. An error leaves some of them.
func Make(state, name string, n int) error {
	c, err := catalog.Open(state)
	if err != nil {
		return err
	}
	rec, err := c.Get(name)
	if err != nil {
		return err
	}
	found, err := filepath.Glob(state + "/data/*/*/" + rec.ID + "*")
	if err != nil {
		return err
	}
	const atOnce = 4 // most of the time is spent waiting for the disk
	errs := make([]error, atOnce)
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += atOnce {
				errs[worker] = one(c, rec, i, found)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// one makes the i-th copy of the sandbox rec, whose data is at the paths found.
func one(c *catalog.Catalog, rec *catalog.Record, i int, found []string) error {
	id := fmt.Sprintf("copy%06d", i)
	own := *rec
	own.ID, own.Name, own.Trees = id, fmt.Sprintf("%s-%d", rec.Name, i), slices.Clone(rec.Trees)
	for k := range own.Trees {
		t := &own.Trees[k]
		t.Base, t.Fork = replaced(t.Base, rec.ID, id), replaced(t.Fork, rec.ID, id)
	}
	data, err := json.Marshal(own)
	if err == nil {
		err = os.Mkdir(c.Path(own.Name), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Path(own.Name), "record.json"), data, 0o600)
	}
	for _, path := range found {
		err = errors.Join(err, copyTree(path, rec.ID, id))
	}
	return err
}

// Remove removes a state directory of copies, which have no processes and no mounts. It deletes several entries at
// once, because each deletion may wait for the disk.
func Remove(state string) error {
	entries, err := filepath.Glob(state + "/*/*")
	if err != nil {
		return err
	}
	deeper, err := filepath.Glob(state + "/data/*/*/*")
	if err != nil {
		return err
	}
	const atOnce = 8
	var all sync.WaitGroup
	for _, list := range [][]string{deeper, entries} {
		for worker := range atOnce {
			all.Go(func() {
				for i := worker; i < len(list); i += atOnce {
					_ = os.RemoveAll(list[i]) // the last call reports what is left
				}
			})
		}
		all.Wait()
	}
	return os.RemoveAll(state)
}

func replaced[T ~string](id T, old, new string) T { return T(strings.Replace(string(id), old, new, 1)) }

// copyTree copies the file or directory at path to the path in which the sandbox's id old is replaced by new.
// It also replaces the id in the text of files.
func copyTree(path, old, new string) error {
	return filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		to := strings.ReplaceAll(p, old, new)
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return os.Mkdir(to, 0o700)
		case !e.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(strings.ReplaceAll(string(data), old, new)), 0o600)
	})
}

// Program copies the program at the path from to the path to, which must not exist, and lets every user run
// it.
func Program(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := vfs.CopyFile(dst, src); err != nil {
		dst.Close()
		return err
	}
	return errors.Join(dst.Chmod(0o755), dst.Close())
}
