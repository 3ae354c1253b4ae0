//go:build linux

package jobs

import (
	"context"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/run"
)

// goroot is the path, in the measured tree, of a copy of Go's standard library. That is a large module to
// build that is on every machine with Go.
const goroot = "go"

// buildLibrary is a job that compiles one package of the copied standard library and all that it imports.
func (a LayerAmounts) buildLibrary(ctx context.Context, dir string) error {
	env := append(Env(dir), "GOROOT="+filepath.Join(dir, goroot), "GOCACHE="+filepath.Join(dir, "libcache"), "GOFLAGS=", "CGO_ENABLED=0")
	return run.Run(ctx, run.Program{Name: "go", Args: []string{"build", a.library}, Env: env, Dir: filepath.Join(dir, goroot, "src")})
}
