//go:build linux

package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/bench/tree"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Job is a piece of everyday work, such as a build, that is timed inside and outside a sandbox.
type Job struct {
	// Name is for the worker process, and What for the report.
	Name, What string
	do         func(ctx context.Context, dir string) error
	// before prepares the job and may be nil. Its time does not count, and its writes are
	// synced before the job begins.
	before func(ctx context.Context, dir string) error
	// after removes large results of the job and may be nil. Its time does not count.
	after func(ctx context.Context, dir string) error
	// First is set for a job that runs in a fresh layer from which the worker has read
	// nothing.
	First bool
}

// Amounts are the sizes, such as numbers of files, of the jobs that are timed inside and outside a sandbox.
type Amounts struct {
	storm, repo, packages, transactions int
	// mebibytes is the size of the large file.
	mebibytes int
}

// AmountsOf returns the sizes for a measurement, or, with quick, sizes too small for useful figures.
func AmountsOf(quick bool) Amounts {
	if quick {
		return Amounts{storm: 500, repo: 1_000, packages: 3, transactions: 20, mebibytes: 4}
	}
	return Amounts{storm: 5_000, repo: 10_000, packages: 30, transactions: 200, mebibytes: 64}
}

// Jobs returns all jobs that are timed inside and outside a sandbox. They work in a directory that Fill has
// filled.
func (a Amounts) Jobs() []Job {
	return []Job{
		{Name: "go build", What: fmt.Sprintf("go build of a program of %d packages, all in the cache but the link", a.packages), do: goBuild},
		{Name: "git status", What: fmt.Sprintf("git status in a repository of %d files", a.repo), do: program("git", "-C", "repo", "status", "--porcelain")},
		{Name: "small files", What: fmt.Sprintf("%d files made, looked at and deleted", a.storm), do: func(_ context.Context, dir string) error { return tree.Storm(dir, a.storm) }},
		{Name: "sqlite", What: fmt.Sprintf("sqlite: %d transactions of an insertion each", a.transactions), do: a.sqlite},
		{Name: "large file", What: fmt.Sprintf("a file of %d MiB written, synced and read", a.mebibytes), do: a.largeFile},
		{Name: Executions, What: fmt.Sprintf("%d executions of true, one after another", executed), do: executions},
		{Name: Openings, What: fmt.Sprintf("a file opened for reading %d times", Opened), do: openings},
	}
}

// Executions is the name of the job that executes true(1) [executed] times.
const Executions = "executions"

// executed is how many programs the job [Executions] executes.
const executed = 100

// Openings is the name of the job that opens a file for reading [Opened] times.
const Openings = "openings"

// Opened is how many times the job [Openings] opens a file.
const Opened = 2_000

// executions executes true(1) [executed] times, one after another.
func executions(ctx context.Context, dir string) error {
	for range executed {
		if err := program("/usr/bin/true")(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// openings opens the file go.mod of the module in dir [Opened] times.
func openings(_ context.Context, dir string) error {
	path := filepath.Join(dir, "module", "go.mod")
	for range Opened {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
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

func (a Amounts) sqlite(ctx context.Context, dir string) error {
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

func (a Amounts) largeFile(_ context.Context, dir string) error {
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

// Fill makes in dir the files that the timed jobs read and change.
func (a Amounts) Fill(ctx context.Context, dir string) error {
	repo := filepath.Join(dir, "repo")
	if err := errors.Join(os.Mkdir(repo, 0o755), tree.Grow(repo, a.repo)); err != nil {
		return err
	}
	if err := GitInit(ctx, repo); err != nil {
		return err
	}
	return errors.Join(makeModule(filepath.Join(dir, "module"), a.packages), os.Mkdir(filepath.Join(dir, "home"), 0o755), goBuild(ctx, dir))
}

// GitInit makes a git repository of the directory dir, with all its files in one commit.
func GitInit(ctx context.Context, dir string) error {
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "all"}} {
		if err := program("git", args...)(ctx, dir); err != nil {
			return err
		}
	}
	return nil
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

// Env returns a worker's environment. Caches and the home directory lie in dir, so that a
// sandbox clones them too.
func Env(dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/home", "GOCACHE=" + dir + "/gocache", "GOPATH=" + dir + "/gopath",
		"GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off", "GOTOOLCHAIN=local", "LC_ALL=C", "TMPDIR=" + dir,
	}
}

// Work runs jobs in the working directory of this process: for each name that it reads from in, the job of that name.
// It writes a line to out: the nanoseconds that the job took, or the error.
func Work(ctx context.Context, jobs []Job, in io.Reader, out io.Writer) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer := "there is no job " + lines.Text()
		for _, j := range jobs {
			if j.Name == lines.Text() {
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
func (j Job) answer(ctx context.Context, dir string) string {
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
