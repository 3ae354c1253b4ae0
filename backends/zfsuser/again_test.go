//go:build vm

package zfsuser_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// The kernel unmounts an unused snapshot after a while, and gives it another device number when it
// is mounted again. Changes of a fork must survive that.
func TestARemountedBaseKeepsItsInodes(t *testing.T) {
	if os.Getenv(largeEnv) == "" {
		const expire = "/sys/module/zfs/parameters/zfs_expire_snapshot"
		was, err := os.ReadFile(expire)
		must(t, err)
		must(t, os.WriteFile(expire, []byte("1"), 0o600)) // seconds, for snapshots mounted from now on
		defer func() { must(t, os.WriteFile(expire, was, 0o600)) }()
		asDelegate(t)
		return
	}
	p := place(t)
	b, err := driver().Open(t.Context(), p)
	must(t, err)
	for _, name := range []string{"/mode", "/content", "/kept"} {
		must(t, os.WriteFile(p.Tree.Path+name, []byte("base"), 0o644))
	}
	s, err := b.Capture(t.Context(), p.Tree, "s1")
	must(t, err)
	f, err := b.Fork(t.Context(), "s1", "f1")
	must(t, err)
	in(t, f.View, func(dir string) {
		must(t, os.Chmod(dir+"/mode", 0o600))
		must(t, os.WriteFile(dir+"/content", []byte("fork"), 0o644))
	})
	before := device(t, s.View.Path)
	unmounted(t, s.View.Path)
	s2, err := b.Capture(t.Context(), p.Tree, "s2") // takes the free number
	must(t, err)
	other, err := os.Open(s2.View.Path)
	must(t, err)
	defer other.Close()
	if after := device(t, s.View.Path); after == before {
		t.Fatalf("the device number is still %#x", after)
	}
	in(t, f.View, func(dir string) {
		for name, want := range map[string]string{"/mode": "base", "/content": "fork", "/kept": "base"} {
			if text, err := os.ReadFile(dir + name); string(text) != want {
				t.Errorf("%s holds %q, %v; want %q", name, text, err, want)
			}
		}
		if st, err := os.Stat(dir + "/mode"); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the mode is %v, %v", st, err)
		}
	})
	must(t, other.Close())
	must(t, b.RemoveFork(t.Context(), "f1"))
	must(t, b.Remove(t.Context(), "s1"))
	must(t, b.Remove(t.Context(), "s2"))
	must(t, b.Sweep(t.Context()))
}

// in calls do with the mounted root of a fork.
func in(t testing.TB, v snapshot.View, do func(dir string)) {
	t.Helper()
	fd, err := v.Served.Mount(t.Context(), false)
	must(t, err)
	root := os.NewFile(uintptr(fd), "root")
	defer root.Close()
	do(fmt.Sprintf("/proc/self/fd/%d/.", fd))
}

// device returns the device number of the filesystem of a directory.
func device(t testing.TB, dir string) uint64 {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	return st.Dev
}

// unmounted waits until the snapshot that contains a directory is unmounted.
func unmounted(t testing.TB, dir string) {
	t.Helper()
	name, _, _ := strings.Cut(dir[strings.Index(dir, "/.zfs/snapshot/"):][len("/.zfs/snapshot/"):], "/")
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		must(t, err)
		if !strings.Contains(string(mounts), "/"+name+" ") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the snapshot stays mounted")
		}
	}
}
