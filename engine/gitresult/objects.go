package gitresult

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/gitrepo"
	"github.com/snapfs/snapfs/internal/vfs"
)

// maxObjects is how many git objects one promotion brings at most, as a bound of its memory. More are an error.
const maxObjects = 5_000_000

// A wanted object is a git object of the sandbox that the real repository lacks and a promotion brings.
type wanted struct {
	id   gitrepo.ID
	kind gitrepo.Kind
	name string // in its tree
}

// missing lists the objects that p.tips, the new values of refs, need and the real repository lacks. It
// checks the commits, trees and tags among them; file contents are checked when they are written.
func (p *Result) missing(ctx context.Context) (all []wanted, err error) {
	seen := map[gitrepo.ID]bool{}
	var todo []wanted
	for _, tip := range p.tips {
		todo = append(todo, wanted{id: tip})
	}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[w.id] {
			continue
		}
		seen[w.id] = true
		has, err := p.repo.real.Has(w.id)
		if err != nil || has {
			if err != nil {
				return nil, err
			}
			continue
		}
		if len(all) == maxObjects {
			return nil, fmt.Errorf("more than %d new objects: %w", maxObjects, gitrepo.ErrTooLarge)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if w.kind == gitrepo.Blob { // read and checked when it is written
			all = append(all, w)
			continue
		}
		o, err := p.objects.read(w.id, w.kind)
		if err != nil {
			return nil, err
		}
		if err := gitrepo.Check(o, w.name); err != nil {
			return nil, fmt.Errorf("object %s: %w", w.id, err)
		}
		w.kind = o.Kind
		all = append(all, w)
		if todo, err = appendReferred(todo, o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// appendReferred appends to todo the objects to which the git object o refers: a commit's tree and parents, a
// tag's object, a tree's entries.
func appendReferred(todo []wanted, o gitrepo.Object) ([]wanted, error) {
	switch o.Kind {
	case gitrepo.Commit:
		c, err := gitrepo.ParseCommit(o.Data, true)
		if err != nil {
			return nil, err
		}
		todo = append(todo, wanted{id: c.Tree, kind: gitrepo.Tree})
		for _, id := range c.Parents {
			todo = append(todo, wanted{id: id, kind: gitrepo.Commit})
		}
	case gitrepo.Tag:
		id, kind, err := gitrepo.ParseTag(o.Data)
		if err != nil {
			return nil, err
		}
		todo = append(todo, wanted{id: id, kind: kind})
	case gitrepo.Tree:
		list, err := gitrepo.ParseTree(o.Data)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if kind := e.Kind(); kind != 0 {
				todo = append(todo, wanted{e.ID, kind, e.Name})
			}
		}
	}
	return todo, nil
}

// WriteObjects writes the objects of the sandbox's commits into the real repository, as one pack: verified,
// synced, and before any ref names them. Objects that no ref names do no harm, and git removes them in time,
// so an undo leaves them. After an error no object was added. Errors: ErrCorrupt for an object that is
// damaged, missing or malformed; ErrDenied for one that Options.Find refuses; ErrNoSpace.
func (p *Result) WriteObjects(ctx context.Context) error {
	all, err := p.missing(ctx)
	if err != nil || len(all) == 0 {
		return p.repo.fail(err)
	}
	return p.repo.fail(p.writePack(ctx, all))
}

func (p *Result) writePack(ctx context.Context, all []wanted) error {
	dir, err := p.packDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	temporary := "tmp_pack_snapfs" + strconv.FormatUint(rand.Uint64(), 36) // git removes what is left of such a name
	f, err := p.create(dir, temporary)
	if err != nil {
		return err
	}
	defer f.Close()
	index, name, err := p.fillPack(ctx, f, all)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temporary, int(dir.Fd()), name+".pack")
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temporary, 0)
		return err
	}
	x, err := p.create(dir, temporary)
	if err != nil {
		return err
	}
	defer x.Close()
	_, err = x.Write(index)
	if err == nil {
		err = x.Sync()
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temporary, int(dir.Fd()), name+".idx")
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temporary, 0)
		_ = unix.Unlinkat(int(dir.Fd()), name+".pack", 0)
		return err
	}
	return dir.Sync()
}

// packDir opens the directory objects/pack of the real git repository, to which the sandbox's objects are
// written, and creates it if it is missing. The caller closes it.
func (p *Result) packDir() (*os.File, error) {
	objects := path.Join(p.repo.dir, "objects")
	const flags = os.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	root := int(p.repo.trees.Real.Fd())
	dir, err := vfs.OpenBeneath(root, objects+"/pack", flags, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	up, err := vfs.OpenBeneath(root, objects, flags, 0)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if err := unix.Mkdirat(int(up.Fd()), "pack", 0o755); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: "pack", Err: err}
	}
	if dir, err = vfs.OpenDir(int(up.Fd()), "pack"); err != nil {
		return nil, err
	}
	return dir, p.own(dir)
}

func (p *Result) create(dir *os.File, name string) (*os.File, error) {
	f, err := vfs.OpenAt(int(dir.Fd()), name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return nil, err
	}
	return f, p.own(f)
}

// own gives f, a new file in the real repository, the owner of the repository's other files. A user who may
// not change owners, as in a repository that a group shares, gets no error.
func (p *Result) own(f *os.File) error {
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err != nil || st.UID == p.uid && st.GID == p.gid {
		return err
	}
	err = f.Chown(int(p.uid), int(p.gid))
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 { // a repository that a group shares
		return nil
	}
	return err
}

func (p *Result) fillPack(ctx context.Context, f *os.File, all []wanted) (index []byte, name string, err error) {
	out := bufio.NewWriterSize(f, 1<<18)
	pack, err := gitrepo.NewPackWriter(out, len(all))
	if err != nil {
		return nil, "", err
	}
	for _, w := range all {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		o, err := p.objects.read(w.id, w.kind)
		if err == nil {
			err = gitrepo.Check(o, w.name)
		}
		if err != nil {
			return nil, "", fmt.Errorf("object %s: %w", w.id, err)
		}
		if err := p.refuse(o, w); err != nil {
			return nil, "", err
		}
		if err := pack.Add(o); err != nil {
			return nil, "", err
		}
	}
	if index, name, err = pack.Finish(); err != nil {
		return nil, "", err
	}
	return index, name, out.Flush()
}

// refuse returns an ErrDenied for the object o of the sandbox if Options.Find finds something in it. w says where o is.
func (p *Result) refuse(o gitrepo.Object, w wanted) error {
	if p.o.Find == nil {
		return nil
	}
	found := p.o.Find(o.Data)
	if found == "" {
		return nil
	}
	what := o.Kind.String() + " " + w.id.String()
	if w.name != "" {
		what += " (" + pathlist.Printable(w.name) + ")"
	}
	return &errs.Error{
		Op: "promoting", Subject: p.o.Sandbox, Path: p.repo.Path(), Kind: errs.ErrDenied, Err: errors.New(found + " is in a new commit, in the " + what),
		Hints: []string{"snapfs shell " + p.o.Sandbox + "   # and remove it from the commits"},
	}
}
