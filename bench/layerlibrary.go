//go:build linux

package bench

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/internal/run"
)

// goroot is the path, in the measured tree, of a copy of Go's standard library. That is a large module to
// build that is on every machine with Go.
const goroot = "go"

// copyLibrary makes the copy of Go's standard library in dir: the sources without tests, and links to the
// tools of this machine's Go.
func copyLibrary(ctx context.Context, dir string) error {
	out, err := run.Output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	from, to := strings.TrimSpace(string(out)), filepath.Join(dir, goroot)
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"bin", "pkg", "VERSION", "go.env"} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	src := filepath.Join(from, "src")
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		return copySource(path, filepath.Join(to, "src", name), name, d)
	})
}

func copySource(from, to, name string, d fs.DirEntry) error {
	switch {
	case d.IsDir() && (name == "cmd" || d.Name() == "testdata"):
		return filepath.SkipDir
	case d.IsDir():
		return os.Mkdir(to, 0o755)
	case strings.HasSuffix(name, "_test.go"):
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// buildLibrary is a job that compiles one package of the copied standard library and all that it imports.
func (a layerAmounts) buildLibrary(ctx context.Context, dir string) error {
	env := append(workEnv(dir), "GOROOT="+filepath.Join(dir, goroot), "GOCACHE="+filepath.Join(dir, "libcache"), "GOFLAGS=", "CGO_ENABLED=0")
	return run.Run(ctx, run.Program{Name: "go", Args: []string{"build", a.library}, Env: env, Dir: filepath.Join(dir, goroot, "src")})
}
