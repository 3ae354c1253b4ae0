package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/internal/forkcall"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func probeMountAPI(context.Context) Result {
	c, err := mount.Fsopen("tmpfs")
	switch {
	case errors.Is(err, unix.ENOSYS):
		return no("this kernel has no fsopen, or a filter hides it")
	case errors.Is(err, unix.EPERM):
		return yes("for root, or in a user namespace") // the call is there
	case err != nil:
		return unknown(err.Error())
	}
	c.Close()
	return yes("")
}

// layersIn makes the layers for trying an overlay in dir: a lower layer with a file and a directory, an empty
// upper layer and a work directory. It returns the mount options of their overlay.
func layersIn(dir string) (mount.Overlay, error) {
	o := mount.Overlay{
		Lower: []string{filepath.Join(dir, "lower")},
		Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"),
	}
	return o, errors.Join(
		os.Mkdir(o.Lower[0], 0o755), os.Mkdir(o.Upper, 0o755), os.Mkdir(o.Work, 0o755),
		os.Mkdir(filepath.Join(o.Lower[0], "dir"), 0o755),
		os.WriteFile(filepath.Join(o.Lower[0], "file"), []byte("x"), 0o644))
}

func (p place) probeOverlay(ctx context.Context) Result { return p.overlay(ctx, mount.Overlay{}) }

func (p place) probeOverlayFeatures(ctx context.Context) Result {
	return p.overlay(ctx, mount.Overlay{RedirectDir: true, Metacopy: true, Volatile: true, NoIndex: true})
}

const needsRoot = "only root can"

// overlay finds out whether an overlay with the mount options of want can be mounted and used, by doing so
// with layers of its own, which it makes in the directory p. It needs root.
func (p place) overlay(ctx context.Context, want mount.Overlay) Result {
	if os.Geteuid() != 0 {
		return no(needsRoot)
	}
	return p.within(ctx, func(dir string) Result {
		o, err := layersIn(dir)
		if err != nil {
			return unknown(err.Error())
		}
		want.Lower, want.Upper, want.Work = o.Lower, o.Upper, o.Work
		return useOverlay(want)
	})
}

func useOverlay(o mount.Overlay) Result {
	m, err := mount.NewOverlay(o)
	if err != nil {
		return overlayRefused(err)
	}
	defer m.Close()
	root := vfs.FDPath(m)
	if err := os.Remove(root + "/file"); err != nil {
		return no("deleting a file of the layer below: " + err.Error())
	}
	if o.RedirectDir {
		if err := os.Rename(root+"/dir", root+"/renamed"); err != nil {
			return no("renaming a directory of the layer below: " + err.Error())
		}
	}
	return yes("")
}

func overlayRefused(err error) Result {
	switch {
	case errors.Is(err, unix.ENODEV):
		return no("the kernel has no overlay filesystem", asRoot("modprobe overlay"))
	case errors.Is(err, unix.EPERM):
		return no("this process has no right to mount: " + err.Error())
	}
	return no(err.Error())
}

// probeUserOverlay finds out whether an ordinary user can use overlays: it mounts one in a user namespace,
// writes a file and deletes one. Old kernels refuse the deletion.
func (p place) probeUserOverlay(ctx context.Context) Result {
	return p.within(ctx, func(dir string) Result {
		o, err := layersIn(dir)
		if err != nil {
			return unknown(err.Error())
		}
		failed, err := userOverlay(o).Run(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)
		switch {
		case err == nil:
			return yes("")
		case failed == "fsopen" && errors.Is(err, unix.ENODEV):
			return no("the kernel has no overlay filesystem", asRoot("modprobe overlay"))
		case failed == "clone" || failed == "fsopen":
			return no("it needs a user namespace: see there")
		}
		return no(failed + ": " + err.Error())
	})
}

func userOverlay(o mount.Overlay) *forkcall.Program {
	p := forkcall.OwnIDs()
	o.UserXattr = true
	addOverlay(p, o)
	return p
}

// addOverlay adds system calls to the program p that try the overlay o: they mount it, make a directory in it
// and delete a file of its lower layer.
func addOverlay(p *forkcall.Program, o mount.Overlay) {
	const set = unix.FSCONFIG_SET_STRING
	c := p.Call("fsopen", unix.SYS_FSOPEN, "overlay", unix.FSOPEN_CLOEXEC)
	for _, option := range [][2]string{{"lowerdir", o.Lower[0]}, {"upperdir", o.Upper}, {"workdir", o.Work}} {
		p.Call(option[0], unix.SYS_FSCONFIG, c, set, option[0], option[1], 0)
	}
	if o.UserXattr {
		p.Call("userxattr", unix.SYS_FSCONFIG, c, unix.FSCONFIG_SET_FLAG, "userxattr", 0, 0)
	}
	p.Call("mounting", unix.SYS_FSCONFIG, c, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	m := p.Call("fsmount", unix.SYS_FSMOUNT, c, unix.FSMOUNT_CLOEXEC, 0)
	p.Call("making a directory", unix.SYS_MKDIRAT, m, "new", 0o755)
	p.Call("deleting a file of the layer below", unix.SYS_UNLINKAT, m, "file", 0)
}

// probeMap is an id mapping in the format of /proc/PID/uid_map, with which probes try id-mapped mounts. It
// differs from the identity, which the kernel might treat specially.
const probeMap = "0 100000 65536"

func (p place) probeIDMap(ctx context.Context) Result {
	return p.idMapped(ctx, func(m *os.File, dir string) Result {
		st, err := vfs.Lstat(int(m.Fd()), "file")
		if err == nil && st.UID != 100000 {
			return no("the mount is there, but shows the ids unmapped")
		}
		if err != nil {
			return unknown(err.Error())
		}
		fs, err := mount.FilesystemOf(dir)
		if err != nil {
			return unknown(err.Error())
		}
		return yes("on " + fs.Type)
	})
}

// probeIDMapOverlay finds out whether an overlay can use an id-mapped mount as its layer. It attaches the
// layer in a private mount namespace, because kernels before 6.15 take no detached layers.
func (p place) probeIDMapOverlay(ctx context.Context) Result {
	return p.idMapped(ctx, func(m *os.File, dir string) Result {
		lower := filepath.Join(dir, "lower")
		p := &forkcall.Program{}
		p.Call("mount", unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
		p.Call("move_mount", unix.SYS_MOVE_MOUNT, int(m.Fd()), "", unix.AT_FDCWD, lower, unix.MOVE_MOUNT_F_EMPTY_PATH)
		addOverlay(p, mount.Overlay{Lower: []string{lower}, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work")})
		if failed, err := p.Run(unix.CLONE_NEWNS); err != nil {
			return no(failed + ": " + err.Error())
		}
		return yes("")
	})
}

// idMapped makes an id-mapped mount of a lower layer in a temporary directory, and calls try with the mount
// and that directory. It answers No if the filesystem does not support id mapping.
func (p place) idMapped(ctx context.Context, try func(m *os.File, dir string) Result) Result {
	if os.Geteuid() != 0 {
		return no(needsRoot)
	}
	return p.within(ctx, func(dir string) Result {
		o, err := layersIn(dir)
		if err != nil {
			return unknown(err.Error())
		}
		userns, err := forkcall.NewUserNamespace(probeMap, probeMap)
		if err != nil {
			return no("it needs a user namespace: " + err.Error())
		}
		defer userns.Close()
		m, err := mount.CloneTree(o.Lower[0])
		if err != nil {
			return no(err.Error())
		}
		defer m.Close()
		if err := mount.IDMap(m, userns); err != nil {
			fs, _ := mount.FilesystemOf(dir)
			return no("not on " + fs.Type + ": " + err.Error())
		}
		return try(m, dir)
	})
}
