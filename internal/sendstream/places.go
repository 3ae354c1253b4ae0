package sendstream

import (
	"errors"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A place is a name that something is mounted on where the stream is carried out: see [How].
type place struct {
	// path is where it is now, or "" where it is not there any more, or is what the stream made; was is
	// where it was.
	path, was string
	unknown   bool
}

func placesOf(how How) []place {
	var all []place
	for _, p := range how.Places {
		all = append(all, place{path: p, was: p, unknown: slices.Contains(how.Unknown, p)})
	}
	return all
}

// made are the commands that a place may be in the way of, and which of their paths it is.
var made = map[Op]attr{
	MkFile: aPath, MkDir: aPath, MkNod: aPath, MkFifo: aPath, MkSock: aPath, Symlink: aPath, Link: aPath, RmDir: aPath, Rename: aPathTo,
}

func inTheWay(err error) bool {
	return slices.ContainsFunc([]error{unix.EEXIST, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR}, func(e error) bool { return errors.Is(err, e) })
}

// vacate removes the places at and beneath a path, or with beneath alone those, where
// they hold nothing else.
func (a *applier) vacate(path string, beneath bool) (moved bool, err error) {
	for i := range slices.Backward(a.places) {
		p := &a.places[i]
		if p.path != path && !strings.HasPrefix(p.path, path+"/") || p.path == path && beneath {
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
		err = a.lifting(&at, remove)
	}
	return err
}

// follow notes where the places are after a node was renamed. The kernel's streams give a
// directory another name before they empty and remove it.
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

// fetch removes what went along with a directory that the stream moved, which where it was made
// has no such name in it, and keeps that directory's times.
func (a *applier) fetch() error {
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
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) { // what it holds is the stream's
			return err
		}
	}
	return nil
}
