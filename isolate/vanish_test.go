package isolate

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// Other users may remove trees beside an ordinary user's at any time; the container then starts with the rest.
func TestStartToleratesVanishedMounts(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	leakless(t)
	spec := userSpec(t)
	gone := overlay(t, "/nothing/here")
	gone.UserXattr, gone.Nested = true, false
	there := overlay(t, "/opt")
	there.UserXattr, there.Nested = true, false
	spec.Mounts = append(spec.Mounts,
		Mount{Target: "/media", Overlay: gone, MayVanish: true},
		Mount{Target: "/mnt", Source: "/nothing/there", ReadOnly: true, MayVanish: true},
		Mount{Target: "/not-in-the-frame", Source: "/usr", ReadOnly: true, MayVanish: true},
		Mount{Target: "/opt", Overlay: there, MayVanish: true},
		Mount{Target: "/srv", Source: "/usr/bin", ReadOnly: true, MayVanish: true})
	container := open(t, spec)
	got := sh(t, container, "ls -A /media; test -e /not-in-the-frame || echo absent; touch /opt/new && echo copied; touch /srv/x 2>/dev/null || echo kept; ls /srv/env")
	if want := "absent\ncopied\nkept\n/srv/env"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	spec = renewed(t, spec)
	spec.Mounts[5].MayVanish = false
	if _, _, err := Start(t.Context(), spec, nil); err == nil {
		t.Error("started although a mount without MayVanish is gone")
	}
}

// Other programs make and remove files, such as the locks of useradd in /etc, while a container starts that binds each
// file of the directory.
func TestStartToleratesFilesThatComeAndGo(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	leakless(t)
	dir := scratch(t)
	write(t, filepath.Join(dir, "stays"), "text")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for path := filepath.Join(dir, "lock"); ; {
			select {
			case <-stop:
				return
			default: // on failure the test tries less
				_ = os.WriteFile(path, nil, 0o600)
				_ = os.Remove(path)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	spec := userSpec(t)
	spec.Mounts = append(spec.Mounts, Mount{Target: dir, Skeleton: dir})
	for range 30 {
		spec = renewed(t, spec)
		container, _, err := Start(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, container, "cat "+dir+"/stays"); got != "text" {
			t.Errorf("%q", got)
		}
		if err := container.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
