//go:build linux

package limits

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An ordinary user may create control groups only in one that was delegated to it. A login session is not; but
// the user's own systemd, if there is one, creates a delegated scope on request (systemd,
// docs/CGROUP_DELEGATION.md). This process then lives in that scope, in a group beside those of its containers,
// because a group cannot hold both processes and controllers.

// ownGroup is the name of the control group in this process's systemd scope to which the process moves
// itself, so that the scope can give controllers to other groups.
const ownGroup = "keeper"

// scopeTime bounds the wait for the user's systemd to create a scope (a control group in which snapfs may
// create others), which normally takes some milliseconds. Then the request for the scope fails.
const scopeTime = 5 * time.Second

// wants lists the cgroup controllers that are needed to enforce the limits, such as "memory" for a memory
// limit.
func (l Limits) wants() []string {
	var list []string
	for _, c := range []struct {
		needed     bool
		controller string
	}{{l.CPUs != 0, "cpu"}, {l.Memory != 0, "memory"}, {l.PIDs != 0, "pids"}, {l.anyRate(), "io"}} {
		if c.needed {
			list = append(list, c.controller)
		}
	}
	return list
}

// withScope returns the cgroup hierarchies to use for l, from found. If the limits need controllers of
// version 2 and this process may create no group there, it first requests a scope from the user's systemd, in
// which it may. Cost of a request: 10 to 20 ms, once in the life of this process.
func withScope(ctx context.Context, found []hierarchy, l Limits) ([]hierarchy, error) {
	if os.Geteuid() == 0 || len(found) == 0 {
		return found, nil
	}
	unified := found[len(found)-1] // version 1 comes first
	elsewhere := func(c string) bool {
		return slices.ContainsFunc(found, func(h hierarchy) bool { return slices.Contains(h.controllers, c) })
	}
	wanted := slices.DeleteFunc(l.wants(), elsewhere)
	if len(wanted) == 0 || unified.version != 2 || len(unified.candidates(true)) > 0 {
		return found, nil
	}
	switch err := enterScope(ctx, unified); {
	case errors.Is(err, fs.ErrNotExist):
		return found, nil // no systemd
	case err != nil:
		return found, err
	}
	return hierarchies()
}

// enterScope moves this process into a new scope of the user's systemd: a control group in which a user
// without privileges may create others, for containers. h is the hierarchy of cgroup version 2.
func enterScope(ctx context.Context, h hierarchy) error {
	ctx, cancel := context.WithTimeout(ctx, scopeTime)
	defer cancel()
	self, err := proc.Identify(os.Getpid())
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%d-%d.scope", namePrefix, self.PID, self.Start)
	if err := requestScope(ctx, name); err != nil {
		return fmt.Errorf("asking the user's systemd for a scope: %w", err)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	mounts, err := mount.List()
	if err != nil {
		return err
	}
	path := ownGroups(string(text))[""]
	i := slices.IndexFunc(mounts, func(m mount.Point) bool { return m.Path == h.mount && m.Type == "cgroup2" })
	if i < 0 || filepath.Base(path) != name {
		return fmt.Errorf("the user's systemd made a scope, and this process is in %s", path)
	}
	own := filepath.Join(locate(mounts[i], path), ownGroup)
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	return vfs.WriteFile(own+"/cgroup.procs", strconv.Itoa(self.PID))
}

// requestScope makes the user's systemd create a scope called name with this process in it, and waits for it.
// The scope ends with its last process.
func requestScope(ctx context.Context, name string) error {
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(systemdSocket()), dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // every reply has been received
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return err
	}
	ended := make(chan *dbus.Signal, 64) // systemd reports every job to all connections
	conn.Signal(ended)
	type property struct {
		Name  string
		Value dbus.Variant
	}
	properties := []property{
		{"Description", dbus.MakeVariant("snapfs: a sandbox and its supervisor")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(os.Getpid())})},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	type auxiliary struct {
		Name       string
		Properties []property
	}
	var job dbus.ObjectPath
	manager := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	err = manager.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.StartTransientUnit", 0,
		name, "fail", properties, []auxiliary{}).Store(&job)
	if err != nil {
		return err
	}
	return jobDone(ctx, ended, job)
}

// jobDone waits until systemd reports the end of the job by the signal JobRemoved(id, job, unit, result) on
// ended. It returns an error if the job failed.
func jobDone(ctx context.Context, ended <-chan *dbus.Signal, job dbus.ObjectPath) error {
	for {
		select {
		case s, open := <-ended:
			switch {
			case !open:
				return errors.New("systemd closed the connection")
			case s.Name != "org.freedesktop.systemd1.Manager.JobRemoved" || len(s.Body) < 4 || s.Body[1] != job:
			case s.Body[3] != "done":
				return fmt.Errorf("the job ended as %v", s.Body[3])
			default:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// systemdSocket returns the path of the private socket of the user's systemd, which needs no
// bus. A command that was not started by a login has no XDG_RUNTIME_DIR.
func systemdSocket() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !strings.HasPrefix(dir, "/") {
		dir = "/run/user/" + strconv.Itoa(os.Geteuid())
	}
	return dir + "/systemd/private"
}

// managed reports whether a systemd manages the control groups in dir, so that snapfs must not create any
// there.
func managed(dir string) bool {
	return strings.HasSuffix(dir, ".slice") || unix.Faccessat(unix.AT_FDCWD, dir+"/init.scope", unix.F_OK, 0) == nil
}
