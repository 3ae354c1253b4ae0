//go:build linux

package treetest

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/run"
)

// Account is an ordinary user of this machine.
type Account struct {
	Name     string
	UID, GID int
	// Home is an empty directory of the user's own, on a real disk.
	Home string
}

var accounts atomic.Int64

// User makes an ordinary user with a unique name, an empty home directory and a
// range of subordinate ids, and removes it and all its processes when the test
// ends. It needs root.
func User(t testing.TB) Account {
	t.Helper()
	NeedRoot(t)
	NeedProgram(t, "useradd")
	a := Account{Name: mark() + strconv.FormatInt(accounts.Add(1), 36)}
	a.Home = filepath.Join(Dir(t), "home")
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} { // useradd gives ranges where they exist
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	t.Cleanup(func() {
		killAll(a.UID)
		if err := removeUser(context.Background(), a.Name); err != nil {
			t.Error(err)
		}
	})
	err := locked(t.Context(), "useradd", "--user-group", "--no-create-home", "--no-log-init",
		"--home-dir", a.Home, "--shell", "/bin/sh", a.Name)
	if err != nil {
		t.Fatal(err)
	}
	u, err := user.Lookup(a.Name)
	if err != nil {
		t.Fatal(err)
	}
	a.UID, _ = strconv.Atoi(u.Uid)
	a.GID, _ = strconv.Atoi(u.Gid)
	if err := errors.Join(os.Mkdir(a.Home, 0o700), os.Chown(a.Home, a.UID, a.GID)); err != nil {
		t.Fatal(err)
	}
	return a
}

// removeUser takes a user and its group away; one that is not there is no error.
func removeUser(ctx context.Context, name string) error {
	err := locked(ctx, "userdel", "--force", name)
	var e *run.Error
	if errors.As(err, &e) && e.Code == 6 { // no such user, userdel(8)
		return nil
	}
	return err
}

// locked runs a program that locks /etc/passwd, again while others have it.
func locked(ctx context.Context, name string, args ...string) error {
	for try := 0; ; try++ {
		_, err := run.Output(ctx, name, args...)
		var e *run.Error
		if try == 200 || !errors.As(err, &e) || !strings.Contains(e.Stderr, "lock") {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// userNames lists the users that tests made.
func userNames() []string {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(passwd)) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// killAll kills every process of a user that this test made.
func killAll(uid int) {
	if uid == 0 {
		return // useradd failed
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && int(st.Uid) == uid {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			_ = unix.Kill(pid, unix.SIGKILL) // it may end by itself
		}
	}
}
