//go:build linux

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A job is a piece of everyday work, such as a build, that is timed inside and outside a sandbox.
type job struct {
	name, what string
	do         func(ctx context.Context, dir string) error
	// before prepares the job and may be nil. Its time does not count, and its writes are
	// synced before the job begins.
	before func(ctx context.Context, dir string) error
	// after removes large results of the job and may be nil. Its time does not count.
	after func(ctx context.Context, dir string) error
	// first is set for a job that runs in a fresh layer from which the worker has read
	// nothing.
	first bool
}

// amounts are the sizes, such as numbers of files, of the jobs that are timed inside and outside a sandbox.
type amounts struct {
	storm, repo, packages, transactions int
	// mebibytes is the size of the large file.
	mebibytes int
}

func amountsOf(quick bool) amounts {
	if quick {
		return amounts{storm: 500, repo: 1_000, packages: 3, transactions: 20, mebibytes: 4}
	}
	return amounts{storm: 5_000, repo: 10_000, packages: 30, transactions: 200, mebibytes: 64}
}

// jobs returns all jobs that are timed inside and outside a sandbox. They work in a directory that fill has
// filled.
func (a amounts) jobs() []job {
	return []job{
		{name: "go build", what: fmt.Sprintf("go build of a program of %d packages, all in the cache but the link", a.packages), do: goBuild},
		{name: "git status", what: fmt.Sprintf("git status in a repository of %d files", a.repo), do: program("git", "-C", "repo", "status", "--porcelain")},
		{name: "small files", what: fmt.Sprintf("%d files made, looked at and deleted", a.storm), do: func(_ context.Context, dir string) error { return storm(dir, a.storm) }},
		{name: "sqlite", what: fmt.Sprintf("sqlite: %d transactions of an insertion each", a.transactions), do: a.sqlite},
		{name: "large file", what: fmt.Sprintf("a file of %d MiB written, synced and read", a.mebibytes), do: a.largeFile},
	}
}

// program returns the function of a timed job that runs the program name with args in the job's directory.
func program(name string, args ...string) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		return run.Run(ctx, run.Program{Name: name, Args: args, Dir: dir})
	}
}

func goBuild(ctx context.Context, dir string) error {
	module := filepath.Join(dir, "module")
	if err := os.Remove(filepath.Join(module, "prog")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return program("go", "build", "-o", "prog", ".")(ctx, module)
}

func (a amounts) sqlite(ctx context.Context, dir string) error {
	return insertions(ctx, dir, a.transactions, "delete")
}

// insertions is the work of a job: it creates an SQLite database in dir and inserts rows in so many
// transactions, one row each, with the given journal mode.
func insertions(ctx context.Context, dir string, transactions int, journal string) error {
	for _, f := range []string{"db", "db-journal", "db-wal", "db-shm"} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriter(w)
		fmt.Fprintf(out, "pragma journal_mode=%s;\ncreate table t (n integer, text text);\n", journal)
		for i := range transactions {
			fmt.Fprintf(out, "insert into t values (%d, 'some text');\n", i)
		}
		w.CloseWithError(out.Flush()) // its error always is nil
	}()
	return run.Run(ctx, run.Program{Name: "sqlite3", Args: []string{"-bail", "db"}, Dir: dir, Stdin: r})
}

func (a amounts) largeFile(_ context.Context, dir string) error {
	path := filepath.Join(dir, "large")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i)
	}
	for range a.mebibytes {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		if _, err := f.Read(block); err == io.EOF {
			return os.Remove(path)
		} else if err != nil {
			return err
		}
	}
}

// fill makes in dir the files that the timed jobs read and change.
func (a amounts) fill(ctx context.Context, dir string) error {
	repo := filepath.Join(dir, "repo")
	if err := errors.Join(os.Mkdir(repo, 0o755), grow(repo, a.repo)); err != nil {
		return err
	}
	if err := gitInit(ctx, repo); err != nil {
		return err
	}
	return errors.Join(makeModule(filepath.Join(dir, "module"), a.packages), os.Mkdir(filepath.Join(dir, "home"), 0o755), goBuild(ctx, dir))
}

// makeModule writes a Go program with this many small packages to dir, for a job that builds it.
func makeModule(dir string, packages int) error {
	imports, calls := "", ""
	for i := range packages {
		name := packageName(i)
		err := os.MkdirAll(filepath.Join(dir, name), 0o755)
		if err == nil {
			err = writePackage(dir, name, i)
		}
		if err != nil {
			return err
		}
		imports += fmt.Sprintf("\t\"example.org/small/%s\"\n", name)
		calls += fmt.Sprintf("\t%s.Say()\n", name)
	}
	main := "package main\n\nimport (\n" + imports + ")\n\nfunc main() {\n" + calls + "}\n"
	return errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/small\n\ngo 1.26\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(main), 0o644))
}

func packageName(i int) string { return fmt.Sprintf("p%02d", i) }

// writePackage writes the only file of the Go package name in module; its function returns the number says.
func writePackage(module, name string, says int) error {
	src := fmt.Sprintf("package %s\n\nimport \"fmt\"\n\nfunc Say() { fmt.Println(%d) }\n", name, says)
	return os.WriteFile(filepath.Join(module, name, name+".go"), []byte(src), 0o644)
}

// workEnv returns a worker's environment. Caches and the home directory lie in dir, so that a
// sandbox clones them too.
func workEnv(dir string) []string {
	return []string{
		searchPath(), "HOME=" + dir + "/home", "GOCACHE=" + dir + "/gocache", "GOPATH=" + dir + "/gopath",
		"GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off", "GOTOOLCHAIN=local", "LC_ALL=C", "TMPDIR=" + dir,
	}
}

// Work is the main function of a worker process. For each job name that it reads from in, it runs the job in
// the working directory and writes a line to out: the nanoseconds, or the error. If o.Only selects the kind
// "layers", it offers the jobs that compare layers instead of those that compare sandboxes.
func Work(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	jobs := amountsOf(o.Quick).jobs()
	if slices.Equal(o.Only, []string{kindLayers}) {
		jobs = layerAmountsOf(o.Quick).jobs()
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer := "there is no job " + lines.Text()
		for _, j := range jobs {
			if j.name == lines.Text() {
				answer = j.answer(ctx, dir)
			}
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// answer runs the job in dir and returns the worker's reply line: the time in nanoseconds, or the error.
func (j job) answer(ctx context.Context, dir string) string {
	if j.before != nil {
		if err := errors.Join(j.before(ctx, dir), settle(dir)); err != nil {
			return err.Error()
		}
	}
	began := time.Now()
	err := j.do(ctx, dir)
	took := time.Since(began)
	if err == nil && j.after != nil {
		err = j.after(ctx, dir)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(took.Nanoseconds())
}

// settle writes the data of earlier work to disk, so that it does not disturb the next measurement. It syncs
// dir, and the filesystem of the directory two levels above it: for a mounted layer, the lower filesystem.
func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	beneath, err := os.Open(filepath.Join(dir, "../.."))
	if err != nil {
		return err
	}
	defer beneath.Close()
	return errors.Join(d.Sync(), vfs.SyncFS(int(beneath.Fd())))
}
