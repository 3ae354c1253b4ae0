//go:build linux

// Package tree fills the trees of files on which package bench measures, always with the same content, and changes some
// of their files.
package tree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// perDir is the number of files in each directory of a tree made for measurements.
const perDir = 100

// Seed determines the pseudo-random file contents of the trees made for measurements, so that all trees are
// equal.
const Seed = 20261120

// Grow fills dir with this many files of 0 to 4 KiB to measure on, a hundred in each directory.
func Grow(dir string, files int) error {
	random := rand.New(rand.NewPCG(Seed, uint64(files)))
	text := make([]byte, 4096)
	for i := range text {
		text[i] = "abcdefghijklmnopqrstuvwxyz \n"[random.IntN(28)]
	}
	for i := range files {
		path := filepath.Join(dir, FileOf(i))
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

// FileOf returns the path of the i-th file in a tree made for measurements.
func FileOf(i int) string { return fmt.Sprintf("%04d/%02d", i/perDir, i%perDir) }

// ChangedFiles is how many files are changed to make a tree dirty for a measurement.
const ChangedFiles = 100

// Dirty rewrites a hundred files of the tree dir, spread over its directories, with a text that names the round.
func Dirty(dir string, files, round int) error {
	for i := range ChangedFiles {
		path := filepath.Join(dir, FileOf(Spread(i, files)))
		if err := os.WriteFile(path, fmt.Appendf(nil, "changed in round %d\n", round), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Spread returns the number of the i-th file to change in a tree with this many files. The changed files are
// evenly spaced.
func Spread(i, files int) int { return i * (files / ChangedFiles) }

// DirtyScript returns a shell script that changes a hundred files of a tree as Dirty does, to run in a sandbox.
func DirtyScript(files, round int) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do n=$((i*%d)); f=$(printf '%%04d/%%02d' $((n/%d)) $((n%%%d))); echo 'changed in round %d' > $f || exit 1; i=$((i+1)); done`,
		ChangedFiles, files/ChangedFiles, perDir, perDir, round)
}

// Storm makes, stats and deletes this many small files in dir, as installing packages does. It is the work of
// a timed job.
func Storm(dir string, files int) error {
	top := filepath.Join(dir, "storm")
	if err := errors.Join(os.RemoveAll(top), os.Mkdir(top, 0o755), Grow(top, files)); err != nil {
		return err
	}
	for i := range files {
		if _, err := os.Lstat(filepath.Join(top, FileOf(i))); err != nil {
			return err
		}
	}
	return os.RemoveAll(top)
}
