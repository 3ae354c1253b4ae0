package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// A directory as a stream would be a way to the whole host.
func TestNoStreamIsADirectory(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		dir, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		c := shell("ls /proc/self/fd/0/")
		c.Stdin = dir
		if _, _, err := Start(t.Context(), spec, &c); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("started with /: %v", err)
		}
		container := open(t, renewed(t, spec))
		if _, err := container.Exec(t.Context(), c); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("executed with /: %v", err)
		}
	})
}

// Hidden paths stay hidden in the next container of the same trees: none of their parents can be moved away.
func TestHiddenPathsCannotBeMoved(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		dir := scratch(t)
		mkdir(t, filepath.Join(dir, "a", "b"))
		mkdir(t, filepath.Join(dir, "a", "free"))
		write(t, filepath.Join(dir, "a", "b", "key"), "the secret")
		spec.Mounts = append(spec.Mounts, Mount{Target: "/mnt", Source: dir})
		spec.Hide = []string{"/mnt/a/b/key"}
		container := open(t, spec)
		for _, d := range []string{"/mnt/a/b", "/mnt/a"} {
			if out, st := output(t, container, shell("mv -T "+d+" /mnt/moved 2>&1")); st.Code == 0 {
				t.Errorf("%s was moved: %s", d, out)
			}
		}
		sh(t, container, "mv /mnt/a/free /mnt/a/freed; echo x > /mnt/a/b/x; mv /mnt/a/b/x /mnt/a/b/y; mv /mnt/a/b/y /mnt/a/freed/; test ! -s /mnt/a/b/key")
		if got := sh(t, container, "grep -rl 'the secret' /mnt || true"); strings.TrimSpace(got) != "" {
			t.Errorf("seen in %s", got)
		}
	})
}
