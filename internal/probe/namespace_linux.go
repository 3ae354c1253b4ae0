package probe

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/internal/forkcall"
	"golang.org/x/sys/unix"
)

// probeUserNamespace finds out whether this user can make user namespaces that are of use: it makes one and
// uses a capability in it. Where AppArmor restricts user namespaces, they can be made but have no
// capabilities.
func probeUserNamespace(context.Context) Result {
	p := forkcall.OwnIDs()
	p.Call("mount", unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	failed, err := p.Run(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	if err == nil {
		return yes("")
	}
	return userNamespaceRefused(failed, err, sysctl)
}

// sysctl returns the value of a kernel setting in /proc/sys, named like "kernel/name"; "" if it does not
// exist.
func sysctl(name string) string {
	b, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(b))
}

// userNamespaceRefused returns a Result with the reason why the kernel refused a user namespace, and the
// command that allows it. failed is the refused operation, err its error, and setting reads a sysctl.
func userNamespaceRefused(failed string, err error, setting func(string) string) Result {
	set := func(name, value string) string {
		return asRoot("sysctl -w " + strings.ReplaceAll(name, "/", ".") + "=" + value)
	}
	const (
		debian   = "kernel/unprivileged_userns_clone"
		apparmor = "kernel/apparmor_restrict_unprivileged_userns"
		limit    = "user/max_user_namespaces"
	)
	switch {
	case setting(debian) == "0":
		return no("ordinary users may not make them here", set(debian, "1"))
	case setting(limit) == "0":
		return no("their number is limited to none", set(limit, "15000"))
	case setting(apparmor) == "1":
		return no("AppArmor gives programs without a profile no rights in them", set(apparmor, "0"))
	case errors.Is(err, unix.ENOSPC):
		return no("too many, or too deep in one another", set(limit, "15000"))
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return no("this kernel is built without them")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return no("refused (" + failed + "): a container, a chroot or a security module around this process forbids them")
	}
	return unknown(failed + ": " + err.Error())
}

func probeNetworkNamespace(context.Context) Result {
	p, flags := &forkcall.Program{}, uintptr(unix.CLONE_NEWNET)
	if os.Geteuid() != 0 {
		p, flags = forkcall.OwnIDs(), flags|unix.CLONE_NEWUSER
	}
	failed, err := p.Run(flags)
	switch {
	case err == nil:
		return yes("")
	case errors.Is(err, unix.EINVAL):
		return no("this kernel is built without them")
	case errors.Is(err, unix.ENOSPC):
		return no("too many", asRoot("sysctl -w user.max_net_namespaces=15000"))
	case flags&unix.CLONE_NEWUSER != 0:
		return no("they need a user namespace: see there")
	}
	return no(failed + ": " + err.Error())
}

func probePidfd(context.Context) Result {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return no(err.Error())
	}
	unix.Close(fd)
	return yes("")
}

func probeSubordinate(context.Context) Result {
	if os.Geteuid() == 0 {
		return yes("root may map any ids")
	}
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if findProgram(program) == "" {
			return no(program+" is not installed", asRoot("apt-get install uidmap"))
		}
	}
	name := userName()
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		ranges, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return unknown(err.Error())
		}
		if !hasRange(string(ranges), name, strconv.Itoa(os.Getuid())) {
			return no("no range for "+name+" in "+path,
				asRoot("usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "+name))
		}
	}
	return yes("")
}

func hasRange(ranges, name, uid string) bool {
	for line := range strings.Lines(ranges) {
		owner, _, _ := strings.Cut(line, ":")
		if owner == name || owner == uid {
			return true
		}
	}
	return false
}

// userName returns the name of this process's user in /etc/passwd, under which /etc/subuid lists the user's
// subordinate ids, or the user id if there is none.
func userName() string {
	uid := strconv.Itoa(os.Getuid())
	passwd, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(passwd)) {
		if f := strings.SplitN(line, ":", 4); len(f) == 4 && f[2] == uid {
			return f[0]
		}
	}
	return uid
}
