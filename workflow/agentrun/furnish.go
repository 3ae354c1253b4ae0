package agentrun

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// Furnish copies the agent's settings, without credentials, into the sandbox called name. The program tar writes
// them inside, with the rights of any command there. After an error the sandbox may have some of them.
func (s *Session) Furnish(ctx context.Context, e *engine.Engine, name string) error {
	files, err := s.settings()
	if err != nil {
		return err
	}
	stdin, archive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	messages, stderr, err := os.Pipe()
	if err != nil {
		return errors.Join(err, archive.Close())
	}
	defer messages.Close()
	packed := make(chan error, 1)
	go func() {
		packed <- errors.Join(pack(archive, path.Join(copies, s.Agent, s.kit.folder), files), archive.Close())
	}()
	p, err := e.Supervise.Exec(ctx, name, engine.Command{
		Args: []string{"tar", "-xpf", "-", "--no-same-owner", "-C", filepath.Dir(filepath.Dir(s.inside))},
		Env:  append(hostfs.Environ(os.Environ(), nil), "LC_ALL=C"), Dir: "/", Stdin: stdin, Stderr: stderr,
	})
	stderr.Close()
	stdin.Close()
	if err != nil {
		return cmp.Or(err, <-packed) // pack fails too, because nobody reads the archive
	}
	text, _ := io.ReadAll(messages) // until tar has ended
	st, err := p.Wait(ctx)
	err = errors.Join(err, p.Close())
	failed := <-packed
	if err == nil && st.ExitCode() != 0 {
		first, _, _ := strings.Cut(string(text), "\n")
		return errs.New("copying the agent's settings", name, errs.ErrNotSupported, cmp.Or(first, "tar ended with an error"))
	}
	return errors.Join(err, failed)
}

// pack writes a tar archive to w, with the directory dir and the files below it.
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

// packDirs adds the directory dir and those above it to the archive, each once. made holds those that it has.
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
