//go:build linux

package prove

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// planApproval plans a probe that makes [CarriedPaths] in the workspace args[0]. Only the host can see whether a
// promotion of them is refused.
func planApproval(args []string) (attempt, error) {
	return attempt{"make files that run by themselves, a link that leads out and a pipe in the workspace", func() outcome {
		for _, name := range CarriedPaths() {
			path := filepath.Join(args[0], name)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			switch name {
			case "leads-out":
				err = errors.Join(err, os.Symlink("/etc/passwd", path))
			case ReplacedByPipe:
				err = errors.Join(err, os.Remove(path), unix.Mkfifo(path, 0o600))
			default:
				err = errors.Join(err, os.WriteFile(path, []byte("true\n"), 0o600))
			}
			if err != nil {
				return untried("%v", err)
			}
		}
		return crossed("they are there, and nobody was asked")
	}}, nil
}
