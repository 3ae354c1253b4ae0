package hostfs

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// secretFiles returns the files of the host that hold secrets of the policy p, and those with the identities that decrypt
// them. Only the sandbox's network proxy has these secrets, so the sandbox must not see the files.
func secretFiles(p catalog.Policy) (files []string) {
	for _, s := range p.Secrets {
		for _, path := range []string{s.File, s.Identity} {
			if filepath.IsAbs(path) {
				files = append(files, filepath.Clean(path))
			}
		}
	}
	return files
}

// checkExposed returns an error if the policy p exposes a file that holds one of its secrets, by any name of the file.
// A directory with such a file may be exposed: the file stays hidden. Errors: errs.ErrInvalid.
func checkExposed(p catalog.Policy) error {
	host := newLookupCache()
	files := host.followed(secretFiles(p))
	for _, x := range p.Expose {
		if slices.ContainsFunc(host.followed([]string{x}), func(path string) bool { return slices.Contains(files, path) }) {
			return &errs.Error{
				Op: "making", Path: x, Kind: errs.ErrInvalid,
				Err:   errors.New("the file holds a secret that only the sandbox's proxy has, so it cannot be exposed"),
				Hints: []string{"snapfs run …   # without --expose " + errs.Quoted(x)},
			}
		}
	}
	return nil
}
