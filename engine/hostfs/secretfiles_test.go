package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// A sandbox cannot expose the file of a secret that only its proxy has, by any of the names of the file.
func TestTheFileOfASecretIsNotExposed(t *testing.T) {
	dir := realDir(t)
	key, link := filepath.Join(dir, "key"), filepath.Join(dir, "link")
	mustWrite(t, key)
	if err := os.Symlink("key", link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, expose string
		want         error
	}{{key, key, errs.ErrInvalid}, {link, key, errs.ErrInvalid}, {key, link, errs.ErrInvalid}, {key, dir, nil}, {key, key + "2", nil}, {"", key, nil}} {
		p := catalog.Policy{Secrets: []catalog.Secret{{Name: "k", File: c.file}}, Expose: []string{c.expose}}
		if err := checkExposed(p); !errors.Is(err, c.want) {
			t.Errorf("the secret %s, exposed %s: %v, want %v", c.file, c.expose, err, c.want)
		}
		if files := secretFiles(p); c.file != "" && !slices.Equal(files, []string{c.file}) {
			t.Errorf("the files of secrets are %q, want %q", files, c.file)
		}
	}
}

// What a policy lets a sandbox write or execute is found by the links of the host, but for directories of its own.
func TestWritablePathsFollowTheLinksOfTheHost(t *testing.T) {
	dir := realDir(t)
	mustWrite(t, filepath.Join(dir, "real/f"))
	for link, to := range map[string]string{"link": "real", "loop": "loop", "gone": "nothing"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		dir + "/link": dir + "/real", dir + "/link/f": dir + "/real/f", dir + "/link/new/x": dir + "/real/new/x", dir + "/loop/x": dir + "/loop/x",
		dir + "/gone": dir + "/gone", dir + "/real": dir + "/real", "/proc/self/exe": "/proc/self/exe",
	} {
		if got := onHost([]string{path}, dir); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if onHost(nil, dir) != nil {
		t.Error("an unset list is empty")
	}
}
