package realwork

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestMain makes, where every user may read it: the program; in repo, a repository
// with the files of this checkout; in mod, the modules that the Go program of the
// tests is built from, as they were downloaded. Only heavy works need modules and commits.
func TestMain(m *testing.M) { os.Exit(treetest.WithProgram(m.Run, prepared)) }

func prepared(ctx context.Context, dir string) error {
	if os.Getenv(treetest.LongEnv) == "" {
		if err := os.Mkdir(filepath.Join(dir, "repo"), 0o755); err != nil {
			return err
		}
		_, err := run.Output(ctx, "cp", "-r", "../../internal", filepath.Join(dir, "repo", "internal"))
		return err
	}
	steps := [][]string{
		{"sh", "-euc", repo, "sh", "../..", filepath.Join(dir, "repo")},
		{"sh", "-euc", modules, "sh", "testdata/program", filepath.Join(dir, "program"), filepath.Join(dir, "mod")},
	}
	for _, step := range steps {
		if _, err := run.Output(ctx, step[0], step[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// repo commits the sources of this checkout a package at a time: what was
// checked out may be a tree without its history.
const repo = `
git init -q "$2"
for d in engine backends isolate internal cmd; do
	cp -r "$1/$d" "$2/$d"
	git -C "$2" add -A
	git -C "$2" -c user.name=realwork -c user.email=realwork@example.org commit -q --no-gpg-sign -m "$d"
done
chmod -R a+rX "$2"`

// modules fetches from the module cache first, and asks the proxy where this
// machine has not got one of them yet.
const modules = `
cp -r "$1" "$2"
proxy=file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)
cd "$2"
mv go.mod.txt go.mod
mv go.sum.txt go.sum
GOMODCACHE=$3 GOPROXY=$proxy GOFLAGS=-modcacherw go mod download
chmod -R a+rX "$3"`

func program() string { return treetest.Program() }
