//go:build linux

package idmap_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/idmap"
	"golang.org/x/sys/unix"
)

const (
	insideEnv = "SNAPFS_TEST_IDMAP_INSIDE"
	serveEnv  = "SNAPFS_TEST_IDMAP_BASE"
)

// TestMain runs the tests in a mount namespace that ends with them. Each mount has a server process of its own:
// a process that waits for a page of a mapped file that it serves itself would hang.
func TestMain(m *testing.M) {
	if base := os.Getenv(serveEnv); base != "" {
		n, err := strconv.ParseUint(base, 10, 32)
		if err == nil {
			err = idmap.Serve(idmap.Device, os.NewFile(idmap.Tree, "tree"), uint32(n))
		}
		os.Exit(status(err))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(insideEnv) == "" {
		cmd := self(insideEnv + "=1")
		cmd.Args = os.Args
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		os.Exit(status(cmd.Run()))
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		os.Exit(status(err))
	}
	os.Exit(m.Run())
}

func status(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// self returns a command that runs this program with more variables, and is killed with this process.
func self(env string) *exec.Cmd {
	runtime.LockOSThread() // the signal is sent when the thread ends
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shown mounts the directory below with ids higher by base, until down or the end of the test.
func shown(t testing.TB, disk string, base uint32) (mnt string, down func()) {
	t.Helper()
	mnt = treetest.Dir(t)
	tree, err := mount.CloneTree(disk)
	must(t, err)
	fuse, m, err := mount.NewFUSE(mount.FUSEOptions{Subtype: "snapfs-shift", Others: true, MaxRead: idmap.MaxRead}, 0)
	must(t, err)
	dev := os.NewFile(uintptr(fuse.Dev), "/dev/fuse")
	server := self(serveEnv + "=" + strconv.FormatUint(uint64(base), 10))
	server.Stderr, server.ExtraFiles = os.Stderr, []*os.File{dev, tree}
	must(t, server.Start())
	dev.Close()
	tree.Close()
	must(t, mount.MoveMount(m, mnt))
	m.Close()
	up := true
	down = func() {
		if up {
			up = false
			must(t, unix.Unmount(mnt, 0))
			must(t, server.Wait())
		}
	}
	t.Cleanup(down)
	return mnt, down
}

// each calls test with a directory of a filesystem with file handles, and of one without.
func each(t *testing.T, test func(t *testing.T, disk string)) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for _, fs := range []string{"tmpfs", "overlay"} {
		t.Run(fs, func(t *testing.T) {
			dir := treetest.Dir(t)
			treetest.Leaks(t, dir)
			mount := func(fs, at, options string) {
				must(t, unix.Mount(fs, at, fs, 0, options))
				t.Cleanup(func() { must(t, unix.Unmount(at, 0)) })
			}
			mount("tmpfs", dir, "mode=755")
			if fs == "overlay" {
				for _, d := range []string{"lower", "upper", "work", "below"} {
					must(t, os.Mkdir(dir+"/"+d, 0o755))
				}
				mount(fs, dir+"/below", "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work")
				dir += "/below"
			}
			test(t, dir)
		})
	}
}

// TestScriptMakesTheSameTreeAsOnDisk plays random changes on a plain directory and on the mapped mount: both
// are equal, and so is the directory on disk, at once.
func TestScriptMakesTheSameTreeAsOnDisk(t *testing.T) {
	each(t, func(t *testing.T, disk string) {
		const same = 0 // ids, so that those of the scripts can be mapped
		mount, down := shown(t, disk, same)
		plainDir := treetest.Dir(t)
		must(t, unix.Mount("plain", plainDir, "tmpfs", 0, "mode=755"))
		t.Cleanup(func() { must(t, unix.Unmount(plainDir, 0)) })
		plain, root := treetest.Open(t, plainDir), treetest.Open(t, mount)
		defer root.Close()
		w := treetest.NewWriter(1, treetest.Powers{Root: true})
		for range 2 {
			s := w.Script(150)
			must(t, s.Play(plain))
			must(t, s.Play(root))
			for _, dir := range []string{mount, disk} {
				got := treetest.Open(t, dir)
				list, err := treetest.Differences(plain, got, treetest.Options{NoDirTimes: true})
				got.Close()
				must(t, err)
				if len(list) > 0 {
					t.Fatalf("%s: %d differences: %.1000q", dir, len(list), list)
				}
			}
		}
		root.Close()
		down()
	})
}

// TestOwnersAreMapped in both directions.
func TestOwnersAreMapped(t *testing.T) {
	each(t, func(t *testing.T, disk string) {
		const base = 1 << 28
		must(t, os.WriteFile(disk+"/theirs", []byte("x"), 0o644))
		must(t, os.Chown(disk+"/theirs", 7, 8))
		must(t, os.WriteFile(disk+"/strange", []byte("x"), 0o644))
		must(t, os.Chown(disk+"/strange", 70000, 70000))
		mount, _ := shown(t, disk, base)
		owner := func(path string, uid, gid uint32) {
			t.Helper()
			st, err := vfs.Lstat(unix.AT_FDCWD, path)
			if err != nil || st.UID != uid || st.GID != gid {
				t.Errorf("%s belongs to %d:%d, %v; want %d:%d", path, st.UID, st.GID, err, uid, gid)
			}
		}
		owner(mount, base, base)
		owner(mount+"/theirs", base+7, base+8)
		owner(mount+"/strange", 65534, 65534)
		must(t, os.Chown(mount+"/theirs", base+9, -1))
		owner(disk+"/theirs", 9, 8)
		for _, id := range []int{0, 1000, base + idmap.Size} {
			if err := os.Chown(mount+"/theirs", id, -1); !errors.Is(err, unix.EOVERFLOW) {
				t.Errorf("to give a file to %d: %v", id, err)
			}
		}
		if err := os.Mkdir(mount+"/d", 0o755); !errors.Is(err, unix.EOVERFLOW) {
			t.Error("the host's root made a directory:", err)
		}
		must(t, as(base+7, base+8, func() error { return os.WriteFile(mount+"/theirs", []byte("no"), 0o644) }, unix.EACCES))
		must(t, os.Chmod(disk, 0o777|os.ModeSticky|os.ModeSetgid))
		mount2, _ := shown(t, disk, base)
		must(t, as(base+7, base+5, func() error { return os.Mkdir(mount2+"/own", 0o755) }, nil))
		owner(disk+"/own", 7, 0) // the group of the directory
	})
}

// as does something as another user, on a thread that ends with it, and compares the result.
func as(uid, gid int, do func() error, want error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := errors.Join(unix.Setfsgid(gid), unix.Setfsuid(uid))
		if err == nil {
			if err = do(); errors.Is(err, want) {
				err = nil
			}
		}
		done <- err
	}()
	return <-done
}

// TestUnlinkedFileStaysWhileOpen, also without file handles.
func TestUnlinkedFileStaysWhileOpen(t *testing.T) {
	each(t, func(t *testing.T, disk string) {
		must(t, os.WriteFile(disk+"/a", []byte("old"), 0o644))
		must(t, os.WriteFile(disk+"/b", []byte("other"), 0o644))
		mount, down := shown(t, disk, 0)
		f, err := os.OpenFile(mount+"/a", os.O_RDWR, 0)
		must(t, err)
		g, err := os.Open(mount + "/b")
		must(t, err)
		must(t, os.Rename(mount+"/a", mount+"/b"))
		must(t, os.Remove(mount+"/b"))
		_, err = f.WriteAt([]byte("new!"), 0)
		must(t, err)
		for f, want := range map[*os.File]string{f: "new!", g: "other"} {
			info, err := f.Stat()
			must(t, err)
			got, err := io.ReadAll(f)
			if int(info.Size()) != len(want) || string(got) != want || err != nil {
				t.Errorf("%d bytes, %q, %v; want %q", info.Size(), got, err, want)
			}
			must(t, f.Close())
		}
		down()
	})
}

// TestMappedPagesAreWrittenAtTheEnd of the mount.
func TestMappedPagesAreWrittenAtTheEnd(t *testing.T) {
	each(t, func(t *testing.T, disk string) {
		must(t, os.WriteFile(disk+"/a", []byte("old"), 0o644))
		mount, down := shown(t, disk, 0)
		f, err := os.OpenFile(mount+"/a", os.O_RDWR, 0)
		must(t, err)
		page, err := unix.Mmap(int(f.Fd()), 0, 3, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		copy(page, "new")
		must(t, unix.Munmap(page))
		must(t, f.Close())
		down()
		if got, err := os.ReadFile(disk + "/a"); string(got) != "new" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}
