package clients

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// servedEnv is the directory of ca.pem, in a process that finds the servers there.
const servedEnv = "SNAPFS_CLIENTS_SERVED"

// TestClientsReachWhatRulesAllowAndSayWhatTheyDoNot: as root and as an ordinary
// user, who ask the same servers.
func TestClientsReachWhatRulesAllowAndSayWhatTheyDoNot(t *testing.T) {
	if os.Getenv(servedEnv) == "" {
		treetest.NeedRoot(t) // the names are the test's own
		treetest.NeedProgram(t, "ip", "git", "dpkg-deb", "pg_createcluster")
		treetest.Leaks(t)
		dir := treetest.Dir(t)
		serve(t, dir)
		t.Setenv(servedEnv, dir)
		t.Run("root", clients)
	}
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithTUN())
			return
		}
		clients(t)
	})
}

func clients(t *testing.T) {
	b := newBox(t)
	list := all
	if long := treetest.Long(t); os.Geteuid() != 0 && !long { // the user's way to the network, which the first shows
		list = all[:1]
	}
	for _, c := range list {
		if c.name == "chromium" && !treetest.Long(t) {
			continue // each start takes a second of processor time
		}
		t.Run(c.name, func(t *testing.T) {
			treetest.NeedProgram(t, c.needs...)
			for _, one := range c.tries {
				b.do(t, one)
			}
		})
	}
	if len(list) == len(all) {
		t.Run("told", func(t *testing.T) { told(t, b) })
	}
}

// told holds what a run tells at its end: what it was refused, also where a
// connection was allowed and cut for what was said on it, and nothing that
// programs ask for by the way.
func told(t *testing.T, b *box) {
	t.Helper()
	for _, c := range []struct{ env, script, says, refused string }{
		{"", "curl -sS -H 'Host: other.test' http://web.test/", "Connection reset by peer", "web.test:80: the Host is other.test, not web.test"},
		{"", "curl -sS http://other.test/", "Could not resolve host", "other.test: no rule allows other.test"},
		{"", "git clone -q https://git.test/repo.git; cat repo/word", greeting, ""},
		{"", apt("http://apt.test"), "", ""},
		// The host's proxy is the sandbox's too, unless a password is in it.
		{"http_proxy=http://other.test:3128", "curl -sS http://web.test/", "Could not resolve proxy", "other.test: no rule allows other.test"},
		{"http_proxy=http://me:secret@other.test:3128", "curl -sS http://web.test/", "this is web.test", ""},
	} {
		again := &box{space: b.space, env: append(slices.Clone(b.env), c.env)}
		out, status := again.snapfs(t, "run", "--discard", "--net", "allow:"+rules, "--", "sh", "-euc", c.script)
		ok := strings.Contains(out, "snapfs: refused: "+c.refused+"\n")
		if c.refused == "" {
			ok = !strings.Contains(out, "refused")
		}
		if !ok || (status == 0) != (c.refused == "") || !strings.Contains(out, c.says) {
			t.Errorf("%s %s: status %d, and it says not %q and %q:\n%s", c.env, c.script, status, c.says, c.refused, out)
		}
	}
}

// A box is a sandbox that may reach what the rules say.
type box struct {
	env   []string
	space string
}

func newBox(t *testing.T) *box {
	t.Helper()
	dir := treetest.Dir(t)
	b := &box{space: dir + "/work"}
	b.env = append(os.Environ(), "SNAPFS_HOME="+dir+"/state", "HOME="+dir+"/home", "LC_ALL=C.UTF-8", "GIT_SSL_CAINFO="+b.space+"/ca.pem",
		"NODE_EXTRA_CA_CERTS="+b.space+"/ca.pem")
	ca, err := os.ReadFile(filepath.Join(os.Getenv(servedEnv), "ca.pem"))
	err = errors.Join(err, os.Mkdir(dir+"/home", 0o755), os.Mkdir(b.space, 0o755), os.WriteFile(b.space+"/ca.pem", ca, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if out, status := b.snapfs(t, "new", "--net", "allow:"+rules, "box"); status != 0 {
		t.Fatalf("status %d\n%s", status, out)
	}
	t.Cleanup(func() {
		if out, status := b.snapfs(t, "rm", "box"); status != 0 {
			t.Errorf("rm: status %d\n%s", status, out)
		}
	})
	return b
}

// snapfs runs the program in the workspace.
func (b *box) snapfs(t *testing.T, args ...string) (output string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, treetest.Program(), args...)
	cmd.Dir, cmd.Env = b.space, b.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// do has a client try something, and looks for the decision on it.
func (b *box) do(t *testing.T, one try) {
	t.Helper()
	begin := time.Now()
	out, status := b.snapfs(t, "exec", "box", "--", "sh", "-euc", one.script)
	if (status == 0) != (one.why == "") || !strings.Contains(out, one.says) {
		t.Errorf("%s: status %d, and it does not say %q:\n%s", one.what, status, one.says, out)
	}
	if one.why == "" {
		for _, ev := range b.refused(t, begin) {
			t.Errorf("%s: refused: %s %s: %s", one.what, ev.Kind, place(ev), ev.Why)
		}
		return
	}
	for {
		all := b.refused(t, begin)
		if slices.ContainsFunc(all, func(ev network.Event) bool {
			return string(ev.Kind) == one.kind && place(ev) == one.place && ev.Why == one.why
		}) {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("%s: no refusal of %s %s: %s, but %+v", one.what, one.kind, one.place, one.why, all)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// refused are the decisions against, since a time. Of names that are not of the
// zone browsers ask for many, and git for its own host.
func (b *box) refused(t *testing.T, since time.Time) (list []network.Event) {
	t.Helper()
	out, status := b.snapfs(t, "net", "--refused", "--json", "box")
	var doc struct{ Events []network.Event }
	if err := json.Unmarshal([]byte(out), &doc); err != nil || status != 0 {
		t.Fatalf("net: status %d, %v\n%s", status, err, out)
	}
	return slices.DeleteFunc(doc.Events, func(ev network.Event) bool {
		return ev.Time.Before(since) || ev.Name != "" && !strings.HasSuffix(ev.Name, ".test")
	})
}

// place is what an event is about, as a rule would have it.
func place(ev network.Event) string {
	switch {
	case ev.Name == "":
		return netip.AddrPortFrom(ev.Addr, ev.Port).String()
	case ev.Port == 0:
		return ev.Name
	}
	return ev.Name + ":" + strconv.Itoa(int(ev.Port))
}
