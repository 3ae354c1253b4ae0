package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

func TestNotifyWritesAFileThatEveryProcessCanRead(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for _, text := range []string{"first\n", "second\n"} {
			if err := container.Notify("news", []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got, _ := output(t, container, shell("cat /run/snapfs/news; cd /run/snapfs; stat -c %a . news | tr '\\n' ' '; ls -A | wc -l")); got != text+"755 644 1\n" {
				t.Errorf("it reads %q", got)
			}
		}
		if err := container.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := container.Notify("news", nil); !errors.Is(err, errs.ErrClosed) {
			t.Errorf("a container that is gone: %v", err)
		}
	})
}

func TestNotifyFollowsNoLinkOutOfTheContainer(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.Mkdir(victim, 0o777); err != nil {
			t.Fatal(err)
		}
		sh(t, container, "ln -s "+victim+" /run/snapfs")
		if err := container.Notify("news", []byte("x")); err == nil {
			t.Error("a link in the place of the directory was followed")
		}
		sh(t, container, "rm /run/snapfs; mkdir /run/snapfs; ln -s "+victim+"/news /run/snapfs/news; ln -s "+victim+"/tmp /run/snapfs/.news")
		if err := container.Notify("news", []byte("x")); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
			t.Errorf("outside lie %v, %v", left, err)
		}
	})
}
