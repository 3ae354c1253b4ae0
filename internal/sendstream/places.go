package sendstream

import (
	"errors"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A place is a mount point, from Options.Places, in the tree to which a send stream is applied. Its empty
// file or directory may be in the way of the stream's own entries. unknown is set if the base of the stream
// lacks it too.
type place struct {
	// path is the place's present path, or "" if the stream has removed or replaced it; was is
	// its first path.
	path, was string
	unknown   bool
}

func placesOf(how Options) []place {
	var all []place
	for _, p := range how.Places {
		all = append(all, place{path: p, was: p, unknown: slices.Contains(how.Unknown, p)})
	}
	return all
}

// obstructable holds the commands of a send stream that fail if a mount point's empty file or directory
// exists at their path, with the attribute that holds this path.
var obstructable = map[Op]attr{
	MkFile: aPath, MkDir: aPath, MkNod: aPath, MkFifo: aPath, MkSock: aPath, Symlink: aPath, Link: aPath, RmDir: aPath, Rename: aPathTo,
}

func obstructed(err error) bool {
	return slices.ContainsFunc([]error{unix.EEXIST, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR}, func(e error) bool { return errors.Is(err, e) })
}

// vacate makes room for an entry of the send stream: it removes the empty files and directories of mount
// points at path and below it, or if inside is set only those below it. moved reports whether it removed any.
func (a *applier) vacate(path string, inside bool) (moved bool, err error) {
	for i := range slices.Backward(a.places) {
		p := &a.places[i]
		if p.path != path && !strings.HasPrefix(p.path, path+"/") || p.path == path && inside {
			continue
		}
		switch err := a.removePlace(p.path); {
		case err == nil:
			p.path, moved = "", true
		case !errors.Is(err, unix.ENOENT):
			return moved, err
		}
	}
	return moved, nil
}

func (a *applier) removePlace(path string) error {
	at := command{op: RmDir}
	at.parts[aPath], at.has[aPath] = []byte(path), true
	remove := func(a *applier, c *command) error {
		err := a.rmdir(c)
		if errors.Is(err, unix.ENOTDIR) {
			err = a.unlink(c)
		}
		return err
	}
	err := remove(a, &at)
	if errors.Is(err, unix.EACCES) && !a.chowns {
		err = a.withPermissions(&at, remove)
	}
	return err
}

// follow updates the noted paths of mount points after a stream command has renamed from to to, so that their
// empty directories are found at the new path. The kernel's streams rename a directory before they empty and
// remove it.
func (a *applier) follow(from, to string) {
	for i := range a.places {
		p := &a.places[i]
		if p.path == from || p.path == to {
			p.path = ""
		} else if rest, in := strings.CutPrefix(p.path, from+"/"); in {
			p.path = to + "/" + rest
		}
	}
}

// removeMoved removes mount points that a rename moved with their directory and that the base of the stream
// does not have, because the stream's tree has no such entry at the new path. The times of the parent
// directory stay.
func (a *applier) removeMoved() error {
	for _, p := range slices.Backward(a.places) {
		if !p.unknown || p.path == "" || p.path == p.was {
			continue
		}
		at := command{}
		at.parts[aPath], at.has[aPath] = []byte(p.path), true
		in, err := a.spot(&at, aPath)
		if err != nil {
			return err
		}
		was, err := vfs.Lstat(in.dir, "")
		if err == nil {
			err = a.removePlace(p.path)
		}
		if err == nil {
			err = vfs.SetTimes(in.dir, &was.ATime, was.MTime)
		}
		in.close()
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) { // a place with content belongs to the stream
			return err
		}
	}
	return nil
}
