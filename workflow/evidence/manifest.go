package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"golang.org/x/sys/unix"
)

// manifest returns a line of JSON for each changed path of a sandbox: its present type, mode and owner, and
// the digest of its content. It is evidence of the state that is promoted.
func manifest(ctx context.Context, e *engine.Engine, rec *catalog.Record) ([][]byte, error) {
	changes, err := e.Compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer changes.Close()
	lines := [][]byte{}
	for _, p := range changes.Parts {
		for _, c := range p.Changes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if c.TimeOnly() {
				continue
			}
			entry, err := entryOf(p.New, &c)
			if err != nil {
				return nil, errs.With("recording the changes of "+rec.Name, filepath.Join(p.Root, c.Path), err)
			}
			path := filepath.Join(p.Root, c.Path)
			if utf8.ValidString(path) {
				entry["path"] = path
			} else {
				entry["path_base64"] = base64.StdEncoding.EncodeToString([]byte(path))
			}
			line, err := audit.Canonical(entry)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// entryOf returns the data of the change c for a manifest, the list of a sandbox's changed files that is
// stored as evidence, without its path. root is the directory with the sandbox's files.
func entryOf(root *os.File, c *diff.Change) (map[string]any, error) {
	entry := map[string]any{"change": c.Kind.String()}
	if c.New == nil {
		return entry, nil
	}
	n := c.New
	entry["mode"], entry["uid"], entry["gid"] = n.Mode.String(), int64(n.UID), int64(n.GID)
	switch {
	case n.Mode.IsRegular():
		entry["size"] = n.Size
		digest, err := digestOf(root, c.Path)
		if err != nil {
			return nil, err
		}
		entry["sha256"] = digest
	case n.Mode&fs.ModeSymlink != 0:
		if utf8.ValidString(n.Target) {
			entry["target"] = n.Target
		} else {
			entry["target_base64"] = base64.StdEncoding.EncodeToString([]byte(n.Target))
		}
	case n.Mode&fs.ModeDevice != 0:
		entry["device"] = fmt.Sprintf("%d:%d", unix.Major(n.Rdev), unix.Minor(n.Rdev))
	}
	return entry, nil
}

// digestOf returns the SHA-256 digest, in hexadecimal, of the content of the file at path below root, for the
// evidence of a sandbox.
func digestOf(root *os.File, path string) (string, error) {
	f, err := vfs.OpenBeneath(int(root.Fd()), path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
