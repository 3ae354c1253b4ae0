//go:build linux

package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/snapfs/snapfs/bench/copies"
	"github.com/snapfs/snapfs/bench/tree"
	"golang.org/x/sys/unix"
)

// LayerAmounts are the sizes of the timed jobs that compare the layers of snapfs, overlayfs and
// fuse-overlayfs on top of a tree.
type LayerAmounts struct {
	repo, packages, many, module, transactions, reads, eight int
	// mebibytes is the size of the file that is written and read.
	mebibytes int
	// library is the package of Go's standard library that the build job compiles.
	library string
}

// LayerAmountsOf returns the sizes for a measurement, or, with quick, sizes too small for useful figures.
func LayerAmountsOf(quick bool) LayerAmounts {
	if quick {
		return LayerAmounts{repo: 300, packages: 3, many: 500, module: 200, transactions: 20, reads: 500, eight: 100, mebibytes: 4, library: "errors"}
	}
	return LayerAmounts{repo: 10_000, packages: 100, many: 50_000, module: 5_000, transactions: 200, reads: 50_000, eight: 2_000, mebibytes: 2048, library: "net/http"}
}

// Jobs returns the jobs that are timed on each layer (such as overlayfs): reading, writing, unpacking,
// building, and many small files.
func (a LayerAmounts) Jobs() []Job {
	return []Job{
		{Name: "go build", What: fmt.Sprintf("go build of %d packages, each of which was changed", a.packages), before: a.changePackages, do: goBuild},
		{Name: "library", What: "go build of " + a.library + " of Go's own library, with all that it imports, nothing in the cache", before: fresh("libcache"), do: a.buildLibrary},
		{Name: "git status", What: fmt.Sprintf("git status in a repository of %d files", a.repo), do: program("git", "-C", "repo", "status", "--porcelain")},
		{Name: "known", What: fmt.Sprintf("%d lower files read again", a.repo), do: readAll},
		{Name: "git clone", What: fmt.Sprintf("git clone of a repository of %d files", a.repo), before: fresh("clone"), do: program("git", "clone", "-q", "--no-hardlinks", "repo", "clone")},
		{Name: "create", What: fmt.Sprintf("%d files of 0 to 4 KiB made", a.many), before: fresh("many"), do: a.makeMany},
		{Name: "walk", What: fmt.Sprintf("%d files listed and looked at", a.many), before: a.haveMany, do: walk("many")},
		{Name: "delete", What: fmt.Sprintf("%d files deleted", a.many), before: a.haveMany, do: func(_ context.Context, dir string) error { return os.RemoveAll(filepath.Join(dir, "many")) }},
		{Name: "extract", What: fmt.Sprintf("tar x of %d files, as an installation of packages does", a.module), before: fresh("x"), do: extract("x.tar", "x")},
		{Name: "sqlite", What: fmt.Sprintf("sqlite: %d transactions of an insertion each", a.transactions), do: a.insert("delete")},
		{Name: "wal", What: fmt.Sprintf("sqlite with a write-ahead log: %d transactions of an insertion each", a.transactions), do: a.insert("wal")},
		{Name: "write", What: fmt.Sprintf("a file of %d MiB written", a.mebibytes), before: fresh("big"), do: a.writeBig, after: fresh("big")},
		{Name: "read", What: fmt.Sprintf("a lower file of %d MiB read for the first time", a.mebibytes), before: a.unread, do: a.readBig},
		{Name: "read again", What: fmt.Sprintf("a file of %d MiB read again", a.mebibytes), do: a.readBig},
		{Name: "random", What: fmt.Sprintf("%d reads of 4 KiB anywhere in it, for the first time", a.reads), before: a.unread, do: a.readRandom},
		{Name: "eight", What: fmt.Sprintf("8 × tar x of %d files at once", a.eight), before: freshEight, do: eight},
		{Name: "first walk", What: fmt.Sprintf("%d lower files listed and looked at, in a new layer", a.repo), First: true, do: walk("repo")},
		{Name: "first status", What: fmt.Sprintf("git status in a repository of %d files, in a new layer", a.repo), First: true, do: program("git", "-C", "repo", "status", "--porcelain")},
		{Name: "first read", What: fmt.Sprintf("%d lower files read, in a new layer", a.repo), First: true, do: readAll},
	}
}

const bigBelow = "big-below"

// Fill makes in dir the files that the jobs timed on each layer (such as overlayfs) read and change.
func (a LayerAmounts) Fill(ctx context.Context, dir string) error {
	err := errors.Join(Amounts{repo: a.repo, packages: a.packages}.Fill(ctx, dir), copies.Library(ctx, filepath.Join(dir, goroot)))
	for name, files := range map[string]int{"x.tar": a.module, "eight.tar": a.eight} {
		top := filepath.Join(dir, "packed")
		err = errors.Join(err, os.Mkdir(top, 0o755))
		if err == nil {
			err = errors.Join(tree.Grow(top, files), program("tar", "-C", "packed", "-cf", name, ".")(ctx, dir), os.RemoveAll(top))
		}
	}
	return errors.Join(err, writeFile(filepath.Join(dir, bigBelow), a.mebibytes))
}

// fresh returns a function that prepares a timed job: it removes the directory called name, which an earlier
// round of the job made.
func fresh(name string) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		return errors.Join(os.RemoveAll(filepath.Join(dir, name)), os.Mkdir(filepath.Join(dir, name), 0o755))
	}
}

// changePackages prepares the timed job that builds a program: it changes the source of every package in dir,
// so that the next build compiles all of them.
func (a LayerAmounts) changePackages(_ context.Context, dir string) error {
	now := int(time.Now().UnixNano())
	for i := range a.packages {
		if err := writePackage(filepath.Join(dir, "module"), packageName(i), now); err != nil {
			return err
		}
	}
	return nil
}

func (a LayerAmounts) makeMany(_ context.Context, dir string) error {
	return tree.Grow(filepath.Join(dir, "many"), a.many)
}

// haveMany prepares a timed job: it makes the directory "many" of small files in dir, unless that exists with
// all its files.
func (a LayerAmounts) haveMany(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "many", tree.FileOf(a.many-1))); err == nil {
		return nil
	}
	return errors.Join(fresh("many")(ctx, dir), a.makeMany(ctx, dir))
}

// walk returns a job, timed on each layer, that calls lstat on every file in the directory called name.
func walk(name string) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		return filepath.WalkDir(filepath.Join(dir, name), func(_ string, d fs.DirEntry, err error) error {
			if err == nil {
				_, err = d.Info()
			}
			return err
		})
	}
}

// readAll is a job, timed on each layer (such as overlayfs), that reads each file of the git repository in
// dir.
func readAll(_ context.Context, dir string) error {
	return filepath.WalkDir(filepath.Join(dir, "repo"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, err = os.ReadFile(path)
		}
		return err
	})
}

// extract returns a job, timed on each layer (such as overlayfs), that unpacks the file archive into the
// directory into.
func extract(archive, into string) func(context.Context, string) error {
	return program("tar", "-C", into, "-xf", archive)
}

func (a LayerAmounts) insert(journal string) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error { return insertions(ctx, dir, a.transactions, journal) }
}

func (a LayerAmounts) writeBig(_ context.Context, dir string) error {
	return writeFile(filepath.Join(dir, "big", "file"), a.mebibytes)
}

func writeFile(path string, mebibytes int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for range mebibytes {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Close()
}

// unread prepares the timed job that reads a large file. It drops the file from the page cache of the
// measured layer, such as overlayfs, and reads it into the page cache of the lower filesystem, which all
// layers share.
func (a LayerAmounts) unread(_ context.Context, dir string) error {
	f, err := os.Open(filepath.Join(dir, bigBelow))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := forget(f); err != nil {
		return err
	}
	below := filepath.Join(dir, "../../lower", bigBelow)
	if _, err := os.Stat(below); err != nil {
		below = f.Name() // there is nothing above this one
	}
	return a.readAll(below)
}

func (a LayerAmounts) readBig(_ context.Context, dir string) error {
	return a.readAll(filepath.Join(dir, bigBelow))
}

func (a LayerAmounts) readAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for range a.mebibytes {
		if _, err := io.ReadFull(f, block); err != nil {
			return err
		}
	}
	return nil
}

func (a LayerAmounts) readRandom(_ context.Context, dir string) error {
	f, err := os.Open(filepath.Join(dir, bigBelow))
	if err != nil {
		return err
	}
	defer f.Close()
	random := rand.New(rand.NewPCG(tree.Seed, 0))
	block := make([]byte, 4096)
	for range a.reads {
		if _, err := f.ReadAt(block, random.Int64N(int64(a.mebibytes)<<8)*4096); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many processes run at the same time in the timed job that unpacks an archive several times at
// once.
const atOnce = 8

func eightNames() (names []string) {
	for i := range atOnce {
		names = append(names, fmt.Sprintf("eight%d", i))
	}
	return names
}

func freshEight(ctx context.Context, dir string) (err error) {
	for _, name := range eightNames() {
		err = errors.Join(err, fresh(name)(ctx, dir))
	}
	return err
}

// eight is a job, timed on each layer (such as overlayfs), that unpacks an archive into eight directories at
// once.
func eight(ctx context.Context, dir string) error {
	var all sync.WaitGroup
	errs := make([]error, atOnce)
	for i, name := range eightNames() {
		all.Go(func() { errs[i] = extract("eight.tar", name)(ctx, dir) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// forget drops the pages of a file from the kernel's page cache, so that the next read is a cold one.
func forget(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
