package copies

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/internal/run"
)

// Library copies Go's standard library to the new directory to: the sources without tests, and links to the tools of
// this machine's Go.
func Library(ctx context.Context, to string) error {
	out, err := run.Output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	from := strings.TrimSpace(string(out))
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
