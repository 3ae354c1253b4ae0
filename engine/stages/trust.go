package stages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// trustedDir is the directory in the state directory with a file for each profile that a person trusts to run
// commands on the host. policy.Profile.Digest is the file's name; the content is for people to read.
const trustedDir = "trusted"

// Trusted reports whether the user has trusted this profile, at this path and with this content, to run
// commands on the host.
func (sg *Store) Trusted(p *policy.Profile) (bool, error) {
	path := filepath.Join(sg.Catalog.Dir(), trustedDir, p.Digest)
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, errs.With("reading", path, err)
}

// Trust stores that the user called by trusts a profile to run commands on the host, durably. It may be
// repeated.
func (sg *Store) Trust(p *policy.Profile, by string) error {
	dir := filepath.Join(sg.Catalog.Dir(), trustedDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return errs.With("making", dir, err)
	}
	text := fmt.Sprintf("%s %s %q\n", time.Now().UTC().Format(time.RFC3339), by, p.Path)
	return sg.Catalog.Store(filepath.Join(trustedDir, p.Digest), []byte(text))
}
