//go:build linux

package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// perDir files lie in each directory of a tree.
const perDir = 100

// seed makes all trees the same every time.
const seed = 20261120

// grow fills dir with files of 0 to 4 KiB, a hundred a directory.
func grow(dir string, files int) error {
	random := rand.New(rand.NewPCG(seed, uint64(files)))
	text := make([]byte, 4096)
	for i := range text {
		text[i] = "abcdefghijklmnopqrstuvwxyz \n"[random.IntN(28)]
	}
	for i := range files {
		path := filepath.Join(dir, fileOf(i))
		if i%perDir == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, text[:random.IntN(len(text)+1)], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileOf is the path of the i-th file within its tree.
func fileOf(i int) string { return fmt.Sprintf("%04d/%02d", i/perDir, i%perDir) }

// changedFiles is how many files are changed where a tree is called dirty.
const changedFiles = 100

// soil changes a hundred files of a tree, spread over its directories.
func soil(dir string, files, round int) error {
	for i := range changedFiles {
		path := filepath.Join(dir, fileOf(spread(i, files)))
		if err := os.WriteFile(path, fmt.Appendf(nil, "changed in round %d\n", round), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// spread is the i-th of the files to change, of as many directories as can be.
func spread(i, files int) int { return i * (files / changedFiles) }

// soilScript is soil for a shell in a sandbox.
func soilScript(files, round int) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do n=$((i*%d)); f=$(printf '%%04d/%%02d' $((n/%d)) $((n%%%d))); echo 'changed in round %d' > $f || exit 1; i=$((i+1)); done`,
		changedFiles, files/changedFiles, perDir, perDir, round)
}

// storm makes, looks at and deletes many small files, as an installation of
// packages does.
func storm(dir string, files int) error {
	top := filepath.Join(dir, "storm")
	if err := errors.Join(os.RemoveAll(top), os.Mkdir(top, 0o755), grow(top, files)); err != nil {
		return err
	}
	for i := range files {
		if _, err := os.Lstat(filepath.Join(top, fileOf(i))); err != nil {
			return err
		}
	}
	return os.RemoveAll(top)
}
