package isolate

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

func TestSpecString(t *testing.T) {
	s := Spec{
		Mounts: []Mount{
			{Target: "/", Overlay: &Overlay{Lower: []string{"/a", "/b"}, Upper: "/u", Work: "/w"}},
			{Target: "/x", Source: "/y", ReadOnly: true},
			{Target: "/z", Skeleton: "/z"},
		},
		Hide: []string{"/h"}, Redacted: []Redacted{{Path: "/h"}}, ReadOnly: []string{"/r"}, Tmp: "/t", TmpLimits: []string{"size=1"}, Hostname: "name", Network: NetworkHost, IDs: Own(65536), BestEffort: true,
		Rlimits: []Rlimit{{unix.RLIMIT_NOFILE, 10, 20}, {unix.RLIMIT_AS, 5, 5}},
	}
	const want = "mount / overlay /a:/b upper /u\nmount /x bind /y read-only\nmount /z skeleton /z\ntmp /t\ntmp limit size=1\n" +
		"read-only /r\nhide /h\nredacted /h\nhostname name\nnetwork host\nids 65536+65536\nlimit NOFILE 10 of 20\nlimit AS 5\nbest effort\n"
	if got := s.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestCheckRefusesInvalidSpecs(t *testing.T) {
	good := func() Spec {
		return Spec{Network: NetworkNone, Mounts: []Mount{{Target: "/", Overlay: &Overlay{Lower: []string{"/"}, Upper: "/d/u", Work: "/d/w", UserXattr: true}}}}
	}
	if err := good().check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Spec){
		"no mounts":           func(s *Spec) { s.Mounts = nil },
		"first is not root":   func(s *Spec) { s.Mounts[0].Target = "/x" },
		"two roots":           func(s *Spec) { s.Mounts = append(s.Mounts, s.Mounts[0]) },
		"two kinds":           func(s *Spec) { s.Mounts[0].Source = "/x" },
		"no kind":             func(s *Spec) { s.Mounts[0].Overlay = nil },
		"no lower":            func(s *Spec) { s.Mounts[0].Overlay.Lower = nil },
		"no work":             func(s *Spec) { s.Mounts[0].Overlay.Work = "" },
		"work elsewhere":      func(s *Spec) { s.Mounts[0].Overlay.Work = "/e/w" },
		"trusted attributes":  func(s *Spec) { s.Mounts[0].Overlay.UserXattr = false },
		"relative layer":      func(s *Spec) { s.Mounts[0].Overlay.Lower = []string{"x"} },
		"unclean target":      func(s *Spec) { s.Mounts = append(s.Mounts, Mount{Target: "/a/../b", Source: "/x"}) },
		"hidden root":         func(s *Spec) { s.Hide = []string{"/"} },
		"redacted, not hid":   func(s *Spec) { s.Redacted = []Redacted{{Path: "/x"}} },
		"a NUL":               func(s *Spec) { s.ReadOnly = []string{"/x\x00"} },
		"relative tmp":        func(s *Spec) { s.Tmp = "tmp" },
		"a network":           func(s *Spec) { s.Network = "" },
		"a host name":         func(s *Spec) { s.Hostname = "a\nb" },
		"root's own ids":      func(s *Spec) { s.IDs = Own(0) },
		"ids past the end":    func(s *Spec) { s.IDs = Own(1<<32 - 1) },
		"no such limit":       func(s *Spec) { s.Rlimits = []Rlimit{{Resource: 99}} },
		"a limit twice":       func(s *Spec) { s.Rlimits = []Rlimit{{Resource: 7}, {Resource: 7}} },
		"a limit upside down": func(s *Spec) { s.Rlimits = []Rlimit{{Resource: 7, Cur: 2, Max: 1}} },
		"nothing to observe":  func(s *Spec) { s.Observe = &Observer{Call: func(Observed) bool { return true }} },
		"no observer's call":  func(s *Spec) { s.Observe = &Observer{Files: true} },
		"a cgroup that is no": func(s *Spec) { s.Cgroups = append(s.Cgroups, nil) },
	} {
		s := good()
		spoil(&s)
		if err := s.check(); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A level does not claim the parts that a best effort lacks.
func TestLevelOmitsMissingParts(t *testing.T) {
	s := Spec{IDs: Own(65536), Network: NetworkHost}
	full, less := s.level(7, nil), s.level(3, []string{partSeccomp, "namespace uts"})
	if got := full.String(); strings.Contains(got, "missing") || !strings.Contains(got, "landlock 7") {
		t.Error(got)
	}
	got := less.String()
	for _, w := range []string{"landlock", "uts,", "; seccomp"} {
		if strings.Contains(got, w) {
			t.Errorf("%s: %s", w, got)
		}
	}
	if !strings.HasSuffix(got, "missing seccomp,namespace uts") {
		t.Error(got)
	}
}

func TestCandidatesAreThoseOfExecvp(t *testing.T) {
	for _, c := range []struct{ name, path, want string }{
		{"/bin/x", "PATH=/a", "/bin/x"},
		{"./x", "PATH=/a", "./x"},
		{"x", "PATH=/a:/b/::c", "/a/x /b/x ./x c/x"},
		{"x", "HOME=/", "/usr/local/sbin/x /usr/local/bin/x /usr/sbin/x /usr/bin/x /sbin/x /bin/x"},
	} {
		if got := strings.Join(candidates(c.name, []string{c.path}), " "); got != c.want {
			t.Errorf("%s in %s: %s", c.name, c.path, got)
		}
	}
}
