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

// An Account is an ordinary user of this machine that a test uses exclusively. [User] returns it.
type Account struct {
	Name     string
	UID, GID int
	// Home is an empty home directory on a disk filesystem.
	Home string
}

var accounts atomic.Int64

// usersEnv is the environment variable that names the directory of the users that the script .ci/users made
// for tests. For each user it holds a file, locked by the test that uses the user, and a link to the user's
// present home directory.
const usersEnv = "SNAPFS_TEST_USERS"

// User returns an ordinary user with an empty home directory and a range of subordinate ids. No other test
// uses this user at the same time. When the test ends, User kills all processes of the user and removes the
// home directory. It needs root.
func User(t testing.TB) Account {
	t.Helper()
	NeedRoot(t)
	NeedProgram(t, "useradd")
	a, ok := sharedUser(t)
	if !ok {
		a = newUser(t)
	}
	u, err := user.Lookup(a.Name)
	if err != nil {
		t.Fatal(err)
	}
	a.UID, _ = strconv.Atoi(u.Uid)
	a.GID, _ = strconv.Atoi(u.Gid)
	t.Cleanup(func() { killAll(t, a.UID) })
	if err := errors.Join(os.Mkdir(a.Home, 0o700), os.Chown(a.Home, a.UID, a.GID)); err != nil {
		t.Fatal(err)
	}
	return a
}

// sharedUser reserves one of the users that the script .ci/users made for tests, until the test ends. ok is
// false if there is none or all are reserved.
func sharedUser(t testing.TB) (a Account, ok bool) {
	t.Helper()
	dir := os.Getenv(usersEnv)
	names, err := filepath.Glob(dir + "/*[0-9]")
	if dir == "" || err != nil {
		return a, false
	}
	for _, path := range names {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			f.Close() // another test has it
			continue
		}
		a = Account{Name: filepath.Base(path)}
		t.Cleanup(func() { f.Close() })
		a.Home = filepath.Join(Dir(t), "home")
		home := path + ".home"
		_ = os.Remove(home) // of a test that was killed
		if err := os.Symlink(a.Home, home); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(home) })
		return a, true
	}
	return a, false
}

// newUser adds an ordinary user to this machine for a test, and removes the user when the test ends.
func newUser(t testing.TB) Account {
	t.Helper()
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
		if err := removeUser(context.Background(), a.Name); err != nil {
			t.Error(err)
		}
	})
	err := locked(t.Context(), "useradd", "--user-group", "--no-create-home", "--no-log-init",
		"--home-dir", a.Home, "--shell", "/bin/sh", a.Name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// removeUser removes a user that a test added to the machine, and the user's group; a missing one is no
// error.
func removeUser(ctx context.Context, name string) error {
	err := locked(ctx, "userdel", "--force", name)
	var e *run.Error
	if errors.As(err, &e) && e.Code == 6 { // no such user, userdel(8)
		return nil
	}
	return err
}

// locked runs a program such as useradd that locks /etc/passwd, and runs it again while another process has
// the lock.
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

// userNames returns the names of the users in /etc/passwd that tests made, so that those of killed tests are
// removed.
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

// killAll kills every process of a test's user, and waits until all have ended, for at most ten seconds;
// after that it logs how many are left.
func killAll(t testing.TB, uid int) {
	t.Helper()
	if uid == 0 {
		return // there is no such user
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			var st unix.Stat_t
			if unix.Stat(dir, &st) == nil && int(st.Uid) == uid && !isZombie(dir) {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				_ = unix.Kill(pid, unix.SIGKILL) // it may end by itself
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Logf("%d processes of user %d are left, after ten seconds of killing them", left, uid)
			return
		}
	}
}

// isZombie reports whether a process has ended and waits for its parent to reap it, so that nothing is left
// to kill. dir is its directory in /proc.
func isZombie(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(state, "Z")
}
