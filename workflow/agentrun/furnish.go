package agentrun

import (
	"archive/tar"
	"context"
	"io"
	"path"
	"path/filepath"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/workflow/copier"
)

// Furnish copies the agent's settings, without credentials, into the sandbox called name. The program tar writes
// them inside, with the rights of any command there. After an error the sandbox may have some of them.
func (s *Session) Furnish(ctx context.Context, e *engine.Engine, name string) error {
	files, err := s.settings()
	if err != nil {
		return err
	}
	return copier.Unpack(ctx, e, "copying the agent's settings", name, filepath.Dir(filepath.Dir(s.inside)), func(w io.Writer) error {
		return pack(w, path.Join(copies, s.Agent, s.kit.folder), files)
	})
}

// pack writes a tar archive to w with files, the copies of an agent's settings, below the directory dir.
func pack(w io.Writer, dir string, files []file) error {
	archive := tar.NewWriter(w)
	made := map[string]bool{}
	if err := packDirs(archive, dir, made); err != nil {
		return err
	}
	for _, f := range files {
		member := path.Join(dir, filepath.ToSlash(f.name))
		if err := packDirs(archive, path.Dir(member), made); err != nil {
			return err
		}
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: member, Size: int64(len(f.data)), Mode: f.mode})
		if err == nil {
			_, err = archive.Write(f.data)
		}
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

// packDirs adds the directory dir and those above it to the archive of an agent's settings, each once. made
// holds the directories that the archive has already.
func packDirs(archive *tar.Writer, dir string, made map[string]bool) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := packDirs(archive, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o700})
}
