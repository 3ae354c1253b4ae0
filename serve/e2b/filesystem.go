package e2b

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os/user"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/e2b/envd"
	"github.com/snapfs/snapfs/serve/files"
)

// A filesystem carries out the requests of E2B's filesystem service: listing, making, moving, removing and
// watching files of a sandbox.
type filesystem struct{ s *Server }

var _ envd.FilesystemHandler = (*filesystem)(nil)

// maxEntries is the largest number of entries that one listing of directories of a sandbox returns to a
// client. A listing with more fails.
const maxEntries = 100_000

// files calls do with the sandbox of the request and with t, which gives access to the sandbox's files.
func (f *filesystem) files(ctx context.Context, do func(b *opened, t tree) error) error {
	b := sandboxOf(ctx)
	err := f.s.checkUser(callOf(ctx).user)
	if err == nil {
		err = f.s.resourcesOf(b).withFiles(ctx, b, func(t tree) error { return do(b, t) })
	}
	return rpcError(err)
}

// target returns the absolute path of a file in a sandbox that a client wants to change. Errors: ErrInvalid
// for an empty path, which would mean the whole home directory.
func target(b *opened, p string) (string, error) {
	at := b.path(p)
	if p == "" || at == "/" {
		return "", errs.New("changing", p, errs.ErrInvalid, "the request must name a file")
	}
	return at, nil
}

// Stat handles a request to describe a file of a sandbox: its type, size, mode, owner and time of change.
func (f *filesystem) Stat(ctx context.Context, q *envd.StatRequest) (*envd.StatResponse, error) {
	out := &envd.StatResponse{}
	err := f.files(ctx, func(b *opened, t tree) (err error) {
		out.Entry, err = describeFile(t, b.path(q.Path))
		return err
	})
	return out, err
}

// MakeDir handles a request to make a directory in a sandbox, with its missing parents. Errors: ErrExists.
func (f *filesystem) MakeDir(ctx context.Context, q *envd.MakeDirRequest) (*envd.MakeDirResponse, error) {
	out := &envd.MakeDirResponse{}
	err := f.files(ctx, func(b *opened, t tree) error {
		at, err := target(b, q.Path)
		if err != nil {
			return err
		}
		if i, err := t.Stat(at, true); err == nil && i.Type != files.Directory {
			return errs.New("making a directory", at, errs.ErrInvalid, "it is a "+i.Type)
		} else if err == nil {
			return errs.New("making a directory", at, errs.ErrExists, "")
		}
		if err := parents(t, at); err != nil {
			return err
		}
		if _, err := t.MakeDir(at, false); err != nil {
			return err
		}
		out.Entry, err = describeFile(t, at)
		return err
	})
	return out, err
}

// parents makes the missing parent directories of the path at in the sandbox's tree t.
func parents(t tree, at string) error {
	dir := path.Dir(at)
	if dir == "/" {
		return nil
	}
	_, err := t.MakeDir(dir, true)
	return err
}

// Move handles a request to move a file of a sandbox to another path. It makes the missing parents of that.
func (f *filesystem) Move(ctx context.Context, q *envd.MoveRequest) (*envd.MoveResponse, error) {
	out := &envd.MoveResponse{}
	err := f.files(ctx, func(b *opened, t tree) error {
		from, err := target(b, q.Source)
		if err != nil {
			return err
		}
		to, err := target(b, q.Destination)
		if err != nil {
			return err
		}
		if _, err := t.Stat(from, false); err != nil {
			return err
		}
		if err := parents(t, to); err != nil {
			return err
		}
		if err := t.Rename(from, to); err != nil {
			return err
		}
		out.Entry, err = describeFile(t, to)
		return err
	})
	return out, err
}

// Remove handles a request to remove a file of a sandbox, or a directory with everything in it. A missing one
// is no error.
func (f *filesystem) Remove(ctx context.Context, q *envd.RemoveRequest) (*envd.RemoveResponse, error) {
	err := f.files(ctx, func(b *opened, t tree) error {
		at, err := target(b, q.Path)
		if err == nil {
			err = t.Remove(at, true)
		}
		if errors.Is(err, errs.ErrNotFound) {
			return nil
		}
		return err
	})
	return &envd.RemoveResponse{}, err
}

// ListDir handles a request to list a directory of a sandbox: it describes the entries, and those of the
// subdirectories down to the depth of the request.
func (f *filesystem) ListDir(ctx context.Context, q *envd.ListDirRequest) (*envd.ListDirResponse, error) {
	out := &envd.ListDirResponse{}
	err := f.files(ctx, func(b *opened, t tree) error {
		at := b.path(q.Path)
		if i, err := t.Stat(at, true); err != nil {
			return err
		} else if i.Type != files.Directory {
			return errs.New("listing", at, errs.ErrInvalid, "it is no directory but a "+i.Type)
		}
		return list(t, at, max(q.Depth, 1), out)
	})
	return out, err
}

func list(t tree, at string, depth uint32, out *envd.ListDirResponse) error {
	for after, more := "", true; more; {
		var entries []files.Info
		var err error
		if entries, more, err = t.List(at, files.ListOptions{After: after}); err != nil {
			return err
		}
		attributes := attributesOf(t, at, entries)
		for n, i := range entries {
			after = i.Name
			child := path.Join(at, i.Name)
			if len(out.Entries) == maxEntries {
				return connect.NewError(connect.CodeResourceExhausted, errors.New("the directories have more entries than fit in a reply"))
			}
			e := entryInfo(t, child, i)
			e.Metadata = attributes[n]
			out.Entries = append(out.Entries, e)
			if i.Type != files.Directory || depth == 1 {
				continue
			}
			if err := list(t, child, depth-1, out); err != nil && !errors.Is(err, errs.ErrNotFound) && !errors.Is(err, errs.ErrDenied) {
				return err
			}
		}
	}
	return nil
}

func describeFile(t tree, at string) (*envd.EntryInfo, error) {
	i, err := t.Stat(at, false)
	if err != nil {
		return nil, err
	}
	e := entryInfo(t, at, i)
	if all, err := t.Attributes(attributePrefix, []string{at}); err == nil && len(all) == 1 {
		e.Metadata = valid(all[0])
	}
	return e, nil
}

// attributePrefix begins the names of the extended attributes in which a file's E2B metadata is stored.
const attributePrefix = "user.e2b."

// attributesOf returns the E2B metadata of each entry of the directory dir. An entry whose metadata cannot be
// read has none.
func attributesOf(t tree, dir string, entries []files.Info) []map[string]string {
	paths := make([]string, len(entries))
	for i, e := range entries {
		paths[i] = path.Join(dir, e.Name)
	}
	all, err := t.Attributes(attributePrefix, paths)
	if err != nil || len(all) != len(entries) {
		return make([]map[string]string, len(entries))
	}
	for i := range all {
		all[i] = valid(all[i])
	}
	return all
}

// valid returns a file's metadata without the values that are not UTF-8, which no message to a client can
// hold.
func valid(values map[string]string) map[string]string {
	maps.DeleteFunc(values, func(name, value string) bool { return !utf8.ValidString(name) || !utf8.ValidString(value) })
	return values
}

// entryInfo describes the file i at the path at in the form of E2B. The type of a symbolic link is that of
// its target.
func entryInfo(t tree, at string, i files.Info) *envd.EntryInfo {
	mode, _ := strconv.ParseUint(i.Mode, 8, 32) // files wrote it
	bits := fs.FileMode(mode & 0o777)
	e := &envd.EntryInfo{
		Name: text(path.Base(at)), Path: text(at), Size: i.Size, Mode: uint32(bits), Permissions: bits.String(),
		Owner: ownerName(i.UID), Group: groupName(i.GID), ModifiedTime: timestamppb.New(i.Modified),
	}
	kind := i.Type
	if kind == files.Symlink {
		target := text(i.Target)
		e.IsSymlink, e.SymlinkTarget = true, &target
		if target, err := t.Stat(at, true); err == nil {
			kind = target.Type
		}
	}
	switch kind {
	case files.File:
		e.Type = envd.FileType_FILE_TYPE_FILE
	case files.Directory:
		e.Type, e.Permissions = envd.FileType_FILE_TYPE_DIRECTORY, "d"+bits.String()[1:]
	case files.Symlink:
		e.Type = envd.FileType_FILE_TYPE_SYMLINK
	}
	return e
}

// text returns a file's name with bytes that are not UTF-8 replaced, because a message can hold only UTF-8.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// names caches the names of users and groups by id, for describing the owners of files. The sandbox is a copy
// of this machine, and so has the same users.
var names sync.Map // of nameKey

type nameKey struct {
	group bool
	id    uint32
}

func ownerName(id uint32) string {
	return cachedName(nameKey{false, id}, func(text string) (string, error) {
		u, err := user.LookupId(text)
		if err != nil {
			return "", err
		}
		return u.Username, nil
	})
}

func groupName(id uint32) string {
	return cachedName(nameKey{true, id}, func(text string) (string, error) {
		g, err := user.LookupGroupId(text)
		if err != nil {
			return "", err
		}
		return g.Name, nil
	})
}

func cachedName(key nameKey, look func(string) (string, error)) string {
	if known, ok := names.Load(key); ok {
		if name, ok := known.(string); ok {
			return name
		}
	}
	text := strconv.FormatUint(uint64(key.id), 10)
	name, err := look(text)
	if err != nil {
		name = text
	}
	names.Store(key, name)
	return name
}
