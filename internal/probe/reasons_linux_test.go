package probe

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/forkcall"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"golang.org/x/sys/unix"
)

func TestARefusedUserNamespaceNamesTheSettingToChange(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		err      error
		fix      string
	}{
		{map[string]string{"kernel/unprivileged_userns_clone": "0"}, unix.EPERM, "kernel.unprivileged_userns_clone=1"},
		{map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, unix.EACCES, "kernel.apparmor_restrict_unprivileged_userns=0"},
		{map[string]string{"user/max_user_namespaces": "0"}, unix.ENOSPC, "user.max_user_namespaces=15000"},
		{nil, unix.ENOSPC, "user.max_user_namespaces=15000"},
		{nil, unix.EPERM, ""},
		{nil, unix.EINVAL, ""},
	} {
		r := userNamespaceRefused("clone", c.err, func(name string) string { return c.settings[name] })
		if r.Answer != No || r.Why == "" || !strings.Contains(strings.Join(r.Fix, " "), c.fix) || (c.fix == "") != (len(r.Fix) == 0) {
			t.Errorf("%v, %v: %+v", c.settings, c.err, r)
		}
	}
	if r := userNamespaceRefused("clone", unix.EIO, func(string) string { return "" }); r.Answer != Unknown {
		t.Errorf("%+v", r)
	}
}

func TestAProgramStopsAtTheCallThatIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := &forkcall.Program{}
	p.Write("/dev/null", "x")
	p.Call("mkdir", unix.SYS_MKDIRAT, unix.AT_FDCWD, dir+"/a", 0o755)
	p.Call("again", unix.SYS_MKDIRAT, unix.AT_FDCWD, dir+"/a", 0o755)
	p.Call("never", unix.SYS_MKDIRAT, unix.AT_FDCWD, dir+"/b", 0o755)
	if failed, err := p.Run(0); failed != "again" || !errors.Is(err, unix.EEXIST) {
		t.Errorf("%q, %v", failed, err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

func TestRangesBelongToANameOrANumber(t *testing.T) {
	const ranges = "ann:100000:65536\n1001:200000:65536\n"
	for _, c := range []struct {
		name, uid string
		want      bool
	}{{"ann", "1000", true}, {"bob", "1001", true}, {"an", "100", false}} {
		if got := hasRange(ranges, c.name, c.uid); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestControllersAreToldFromOptions(t *testing.T) {
	if got := strings.Join(hostinfo.Controllers("rw,cpu,cpuacct,xattr,name=x,release_agent=/bin/y"), " "); got != "cpu cpuacct" {
		t.Errorf("%q", got)
	}
}
