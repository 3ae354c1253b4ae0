package hostfs

import (
	"errors"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/datafiles"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/snapfs/snapfs/isolate"
)

// AlwaysReadable returns the directories that every sandbox may read.
func AlwaysReadable() []string { return isolate.AlwaysReadable[:] }

// limitPaths adds to the container spec s the rules of the policy p about data and programs, as limitData and
// limitPrograms do.
func limitPaths(s *isolate.Spec, p catalog.Policy, workspace string, cache dpkg.Cache) (notes []string, err error) {
	if err := limitData(s, p.Data, workspace); err != nil {
		return nil, err
	}
	return limitPrograms(s, p.Tools, workspace, cache)
}

// limitData adds to the container spec s which paths data, which may be nil, allows to read and to write in a sandbox with
// the directory workspace. It follows the symbolic links of the host, because those in the sandbox's copies may be work
// of the sandbox. Errors: those of [datafiles.Find], and errs.ErrNotSupported for a workspace that every sandbox can read.
func limitData(s *isolate.Spec, data *catalog.Data, workspace string) error {
	if data == nil {
		return nil
	}
	readable, err := datafiles.Find("readable", data.Readable, true)
	writable, err2 := datafiles.Find("writable", data.MayWrite(), true)
	readOnly, err3 := datafiles.Find("read-only", data.ReadOnly, false)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	s.ReadOnly, s.Readable, s.Writable = newLookupCache().followed(readOnly), onHost(readable, workspace), onHost(writable, workspace)
	covers := func(dir string) bool { return Within(workspace, dir) }
	if i := slices.IndexFunc(isolate.AlwaysReadable[:], covers); s.Readable != nil && i >= 0 && !slices.ContainsFunc(slices.Concat(s.Readable, s.Writable), covers) {
		return &errs.Error{
			Op: "allowing paths", Path: workspace, Kind: errs.ErrNotSupported, Err: errors.New("readable cannot hold below " + isolate.AlwaysReadable[i] + ", which every sandbox can read"),
			Hints: []string{"move the workspace elsewhere, or name it in readable"},
		}
	}
	return nil
}
