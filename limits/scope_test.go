//go:build vm

// Only a version 2 hierarchy with controllers has scopes with limits: see test/vm.

package limits

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestUserSystemdDelegatesAScope runs in a session whose group is root's, as a login's is, with a systemd of
// the user beside it.
func TestUserSystemdDelegatesAScope(t *testing.T) {
	if os.Getenv("SNAPFS_TEST_AS") == "delegated" {
		delegatedUser(t) // only the scope remains, which ends with this process
		text, err := os.ReadFile("/proc/self/cgroup")
		if err != nil || !strings.HasSuffix(string(text), fmt.Sprintf("snapfs-%d-%d.scope/keeper\n", os.Getpid(), startOf(t))) {
			t.Errorf("not in a scope of its own: %s %v", text, err)
		}
		return
	}
	user := treetest.User(t)
	treetest.Leaks(t)
	run := session(t, user)
	userSystemd(t, user, run)
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), "SNAPFS_TEST_AS=delegated", "XDG_RUNTIME_DIR="+run)
	out, err := inGroup(t, c, user, "shell")
	if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(out)
}

func startOf(t *testing.T) uint64 {
	t.Helper()
	self, err := proc.Identify(os.Getpid())
	must(t, err)
	return self.Start
}

// login is the group of the session. It belongs to root, except for the right to move processes between its
// children, which a login leaves to the system's systemd.
func login() string { return fmt.Sprintf("/sys/fs/cgroup/snapfs-login-%d", os.Getpid()) }

// session creates the groups of a login, and its directory in /run.
func session(t *testing.T, user treetest.Account) (run string) {
	t.Helper()
	controllers := []string{"cpu", "memory", "pids"}
	_, lacks, err := enable("/sys/fs/cgroup", controllers)
	must(t, err)
	must(t, lacks)
	for _, dir := range []string{login(), login() + "/shell", login() + "/manager"} {
		must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { removeGroups(t, dir) })
	}
	_, lacks, err = enable(login(), controllers)
	must(t, err)
	must(t, lacks)
	for _, file := range []string{"/cgroup.procs", "/manager", "/manager/cgroup.procs", "/manager/cgroup.subtree_control", "/manager/cgroup.threads"} {
		must(t, os.Chown(login()+file, user.UID, user.GID))
	}
	run = filepath.Join(user.Home, "run")
	must(t, os.Mkdir(run, 0o700))
	must(t, os.Chown(run, user.UID, user.GID))
	return run
}

// userSystemd starts a systemd without units, and waits until it listens.
func userSystemd(t *testing.T, user treetest.Account, run string) {
	t.Helper()
	treetest.NeedProgram(t, "/lib/systemd/systemd")
	units := filepath.Join(filepath.Dir(user.Home), "units")
	must(t, os.Mkdir(units, 0o755))
	must(t, os.WriteFile(units+"/default.target", []byte("[Unit]\nDescription=nothing\n"), 0o644))
	c := exec.Command("/lib/systemd/systemd", "--user", "--log-target=console")
	c.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + user.Home, "XDG_RUNTIME_DIR=" + run, "SYSTEMD_UNIT_PATH=" + units, "XDG_CONFIG_DIRS=" + units}
	c.Stdout, c.Stderr = t.Output(), t.Output()
	ended := make(chan error, 1)
	go func() {
		_, err := inGroup(t, c, user, "manager")
		ended <- err
	}()
	t.Cleanup(func() {
		if c.Process != nil {
			_ = c.Process.Kill()
			<-ended //nolint:errcheck // it was killed
		}
	})
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(run + "/systemd/private"); err == nil {
			return
		}
		if time.Since(start) > slow(20*time.Second) {
			t.Fatal("the user's systemd does not listen")
		}
	}
}

// inGroup runs a command as a user in a group of the session.
func inGroup(t *testing.T, c *exec.Cmd, user treetest.Account, group string) (string, error) {
	t.Helper()
	dir, err := os.Open(login() + "/" + group)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	var out strings.Builder
	if c.Stdout == nil {
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader("go\n"), &out, &out
	}
	c.Dir = "/"
	c.SysProcAttr = &unix.SysProcAttr{
		Credential:  &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID)},
		UseCgroupFD: true, CgroupFD: int(dir.Fd()),
	}
	err = c.Run()
	return out.String(), err
}

// removeGroups removes a group and its children.
func removeGroups(t *testing.T, dir string) {
	t.Helper()
	_ = vfs.WriteFile(dir+"/cgroup.kill", "1")
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var below []string
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				below = append(below, path)
			}
			return nil
		})
		for i := len(below) - 1; i >= 0; i-- {
			_ = os.Remove(below[i])
		}
		if _, err := os.Stat(dir); err != nil {
			return
		}
		if time.Since(start) > slow(5*time.Second) {
			t.Error("left:", dir, strconv.Itoa(len(below)))
			return
		}
	}
}
