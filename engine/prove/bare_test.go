package prove

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A probe that reports isolation where there is none would be worthless.
func TestProbesReportMissingIsolation(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	dir := treetest.Dir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	accounts := filepath.Join(dir, "accounts")
	if err := os.WriteFile(accounts, []byte("root:*:1::::::\nann:!$6$salt$hash:1::::::\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pid, start := victim(t)
	for name, args := range map[string][]string{
		"memory":        {"1000000"},
		"memory-files":  {"1000000"},
		"pids":          {"3"},
		"files":         {"20"},
		"disk":          {"1000000", dir},
		"inodes":        {"100", dir},
		"cpus":          {"0.1"},
		"cpu-time":      {"50ms"},
		"time":          {"50ms"},
		"write-rate":    {"10000", dir},
		"read-rate":     {"10000", dir},
		"write-ops":     {"10", dir},
		"read-ops":      {"10", dir},
		"other-sandbox": {pid, start, dir},
		"masked":        {"/nothing/here", file},
		"passwords":     {accounts},
		"late-secret":   {file},

		"replaced-secret": {file},

		"state":        {dir},
		"variables":    {"PATH"},
		"read-only":    {dir, file},
		"data":         {dir, file},
		"writable":     {dir, file},
		"readable":     {dir, file},
		"recorded":     {file},
		"tools":        {"/bin/true"},
		"tools-allow":  {"/bin/true"},
		"tools-digest": {"/bin/true"},
		"other-name":   {file, "x"},
		"approval":     {withNotes(t)},

		"tools-arguments": {"/bin/true"},
		"see-process":     {pid, start},
		"signal-process":  {pid, start},
		"trace-process":   {pid, start},
		"pid-1":           nil,
	} {
		if r := bare(t, name, args...); r.Held || strings.HasPrefix(r.Happened, "could not") {
			t.Errorf("%+v", r)
		}
	}
	left, err := filepath.Glob(dir + "/*")
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

// The kernel of this machine may lack a probed feature; then the host's root lacks it too.
func TestPowerProbesSucceedForTheHostsRoot(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	crossed := 0
	for _, p := range powerProbes() {
		switch r := bare(t, p.Name); {
		case strings.HasPrefix(r.Happened, "could not"):
			t.Errorf("%+v", r)
		case !r.Held:
			crossed++
		case !strings.Contains(r.Happened, "not implemented") && !strings.Contains(r.Happened, "not supported"):
			t.Errorf("%+v", r)
		}
	}
	if all := len(powerProbes()); crossed < all*2/3 {
		t.Errorf("only %d of %d are allowed", crossed, all)
	}
}

func TestNetworkProbesReportAnOpenNetwork(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "unshare", "ip")
	treetest.Leaks(t)
	for _, c := range []struct {
		service, name string
		args          []string
	}{
		{"tcp://127.0.0.1:7001", "name", []string{"localhost:7001"}},
		{"tcp://127.0.0.1:7001", "ipv4", []string{"127.0.0.1:7001"}},
		{"tcp://[::1]:7001", "ipv6", []string{"[::1]:7001"}},
		{"udp://127.0.0.1:7053", "resolver", []string{"127.0.0.1:7053", "example.com"}},
		{"gullible://127.0.0.1:7443", "tls-name", []string{"localhost:7443", "example.com"}},
		{"gullible://127.0.0.1:7080", "http-name", []string{"localhost:7080", "example.com"}},
		{"gullible://127.0.0.1:7443", "tls-record", []string{"localhost:7443", "example.com"}},
		{"gullible://127.0.0.1:7080", "http-blank", []string{"localhost:7080", "example.com"}},
		{"tcp://169.254.169.254:80", "metadata", nil},
		{"tcp://[::1]:7001", "loopback", []string{"7001"}},
	} {
		if r := beside(t, []string{c.service}, c.name, c.args...); r.Held || strings.HasPrefix(r.Happened, "could not") {
			t.Errorf("%+v", r)
		}
		if strings.HasPrefix(c.service, "gullible:") {
			continue
		}
		if r := beside(t, nil, c.name, c.args...); !r.Held {
			t.Errorf("where nobody listens: %+v", r)
		}
	}
	if r := beside(t, []string{"tls://127.0.0.1:7443"}, "tls-name", "localhost:7443", "example.com"); !r.Held {
		t.Errorf("a server that looks at the name: %+v", r)
	}
	if r := beside(t, nil, "tls-name", "localhost:7443", "example.com"); r.Held || !strings.HasPrefix(r.Happened, "could not") {
		t.Errorf("no server at all: %+v", r)
	}
	name := "snapfs-prove-" + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r := bare(t, "abstract-socket", name); r.Held {
		t.Errorf("%+v", r)
	}
	if r := beside(t, nil, "abstract-socket", name); !r.Held {
		t.Errorf("in another network: %+v", r)
	}
}

// Each rule about requests is reported as held by a server that refuses as the proxy does, as broken by one that answers
// everything, and as not tried where there is none. It costs some 0.3 s.
func TestRequestProbesReportTheStatus(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "unshare", "ip")
	const at = "127.0.0.1:7080"
	for probe, refusing := range map[string]string{"tokens": "budget", "http-method": "rules", "http-path": "rules", "labels": "labels"} {
		args := []string{at, "labelled"}[:len(probeArgs(t, probe))]
		if r := beside(t, []string{refusing + "://" + at}, probe, args...); !r.Held {
			t.Errorf("a server that refuses: %+v", r)
		}
		if r := beside(t, []string{"web://" + at}, probe, args...); r.Held || strings.HasPrefix(r.Happened, "could not") {
			t.Errorf("a server that answers: %+v", r)
		}
		for _, services := range [][]string{nil, {"gullible://" + at}} {
			if r := beside(t, services, probe, args...); r.Held || !strings.HasPrefix(r.Happened, "could not") {
				t.Errorf("no such server: %+v", r)
			}
		}
	}
}

// A base URL is reported as held by a server that refuses all but the URL's path, as broken by one that answers
// everything or beside a process that has the secret, and as not tried without a URL or a server. It costs some 0.3 s.
func TestTheBaseURLProbeReportsTheStatus(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "unshare", "ip")
	digest := func(value string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(value))) }
	t.Setenv("SNAPFS_TEST_PLACEHOLDER", "placeholder")
	t.Setenv("SNAPFS_TEST_URL", "http://127.0.0.1:7080"+HTTPRulePath)
	for _, c := range []struct {
		service, variable, secret string
		held, tried               bool
	}{
		{"rules", "SNAPFS_TEST_URL", "of nobody", true, true},
		{"web", "SNAPFS_TEST_URL", "of nobody", false, true},
		{"rules", "SNAPFS_TEST_URL", "placeholder", false, true},
		{"rules", "SNAPFS_TEST_UNSET", "of nobody", false, false},
		{"gullible", "SNAPFS_TEST_URL", "of nobody", false, false},
	} {
		r := beside(t, []string{c.service + "://127.0.0.1:7080"}, "base-url", c.variable, "SNAPFS_TEST_PLACEHOLDER", digest(c.secret))
		if r.Held != c.held || r.WasTried() != c.tried {
			t.Errorf("%s, %s, a secret %s: %+v", c.service, c.variable, c.secret, r)
		}
	}
}

// Keys of AWS are reported as held by a server that refuses all but the first signature, as broken by one that answers
// everything, or that asks for the path alone, or beside a process that has the key, and as not tried without a URL or a
// server. It costs some 0.3 s.
func TestTheAWSProbeReportsTheStatus(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "unshare", "ip")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAPLACEHOLDER")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "placeholder")
	t.Setenv("SNAPFS_TEST_URL", "http://127.0.0.1:7080")
	for _, c := range []struct {
		service, variable, secret string
		held, tried               bool
	}{
		{"aws", "SNAPFS_TEST_URL", "of nobody", true, true},
		{"web", "SNAPFS_TEST_URL", "of nobody", false, true},
		{"rules", "SNAPFS_TEST_URL", "of nobody", false, true},
		{"aws", "SNAPFS_TEST_URL", "placeholder", false, true},
		{"aws", "SNAPFS_TEST_UNSET", "of nobody", false, false},
		{"gullible", "SNAPFS_TEST_URL", "of nobody", false, false},
	} {
		r := beside(t, []string{c.service + "://127.0.0.1:7080"}, "aws", c.variable, hexDigest(c.secret))
		if r.Held != c.held || r.WasTried() != c.tried {
			t.Errorf("%s, %s, a secret %s: %+v", c.service, c.variable, c.secret, r)
		}
	}
}

// TestTheProbeSignsAsClientsOfAWSDo, to the letter.
func TestTheProbeSignsAsClientsOfAWSDo(t *testing.T) {
	s := awsSigner{id: "AKIAPLACEHOLDER", key: "SnapfsPlaceholder", region: "us-east-1", when: time.Now().UTC().Truncate(time.Second)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://198.18.0.1:8001"+HTTPRulePath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Content-Sha256", hexDigest(""))
	if err := v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: s.id, SecretAccessKey: s.key}, r, hexDigest(""), "s3", s.region, s.when); err != nil {
		t.Fatal(err)
	}
	want := "Authorization: " + r.Header.Get("Authorization") + "\r\n"
	if got := s.headers("198.18.0.1:8001", HTTPRulePath); !strings.HasSuffix(got, want) || !strings.HasPrefix(got, "X-Amz-Date: "+r.Header.Get("X-Amz-Date")+"\r\n") {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// A secret is found by its digest in the environment of any process, under whatever name.
func TestTheSecretProbeFindsTheSecret(t *testing.T) {
	digest := func(value string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(value))) }
	t.Setenv("SNAPFS_TEST_PLACEHOLDER", "placeholder")
	if r := bare(t, "secret", "SNAPFS_TEST_PLACEHOLDER", digest("the secret of nobody")); !r.Held {
		t.Errorf("a placeholder alone: %+v", r)
	}
	if r := bare(t, "secret", "SNAPFS_TEST_UNSET", digest("the secret of nobody")); r.Held || !strings.HasPrefix(r.Happened, "could not") {
		t.Errorf("no placeholder: %+v", r)
	}
	for _, value := range []string{"placeholder", "as a part of another"} {
		t.Setenv("SNAPFS_TEST_OTHER", "as a part of another")
		if r := bare(t, "secret", "SNAPFS_TEST_PLACEHOLDER", digest(value)); r.Held || strings.HasPrefix(r.Happened, "could not") {
			t.Errorf("%s: %+v", value, r)
		}
	}
}

// probeArgs returns the names of the arguments of a probe.
func probeArgs(t *testing.T, name string) []string {
	t.Helper()
	p, ok := find(name)
	if !ok {
		t.Fatalf("%s: no such probe", name)
	}
	return p.Args
}

// A limit that the kernel enforces for each process counts.
func TestLimitProbesReportRlimits(t *testing.T) {
	treetest.NeedProgram(t, "prlimit")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][]string{
		"files":    {"--nofile=64", "64"},
		"cpu-time": {"--cpu=1:1", "1s"},
	} {
		r := prover(t, exec.Command("prlimit", c[0], binary, "prove", name, c[1]), name)
		if !r.Held {
			t.Errorf("%+v", r)
		}
	}
	for limit, held := range map[string]bool{"100000000": true, "20000000": false} {
		if r := prover(t, exec.Command(binary, "data://90000000", "prove", "memory", limit), "memory"); r.Held != held {
			t.Errorf("%+v", r)
		}
	}
	if r := prover(t, exec.Command("prlimit", "--nofile=64", binary, "prove", "files", "50"), "files"); r.Held {
		t.Errorf("a limit above the one that was promised: %+v", r)
	}
}

// victim starts a process of the host as a target.
func victim(t *testing.T) (pid, start string) {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = c.Wait()
	})
	start, err := StartOf(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(c.Process.Pid), start
}

// withNotes returns a directory with the file that the probe approval replaces.
func withNotes(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ReplacedByPipe), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
