//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestBudgetEndsAndIsRaised(t *testing.T) {
	v := newVault(t, `"POST https://host.snapfs:PORT/v1/*"`, "", "[budget]\ntokens = 200\nhosts = [\"host.snapfs\"]")
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	ask := []string{"exec", "fix", "--", "curl", "-sS", "-d", `{"max_tokens":20}`, v.script("https://host.snapfs:PORT/v1/messages")}
	for range 4 {
		v.snapfs(ask...).want(0).has(`"output_tokens":20`)
	}
	refused := v.beginRefused("fix", ask[3:]...)
	v.snapfs("budget", "show", "fix").want(0).has("tokens", "200 used", "of 200")
	v.snapfs("budget", "raise", "fix", "tokens", "+100").want(0).has("of 300", "resumed fix")
	refused().want(0).has("the budget tokens of 200 has no room", "200 used", "snapfs budget raise fix tokens +N")
	v.snapfs(ask...).want(0).has(`"output_tokens":20`)
	fits(t, "budget-show", v.snapfs("budget", "show", "--json", "fix").want(0).stdout)
	var shown struct {
		Used struct {
			Tokens, Requests int64
		} `json:"used"`
	}
	if err := json.Unmarshal([]byte(v.snapfs("budget", "show", "--json", "fix").want(0).stdout), &shown); err != nil || shown.Used.Tokens != 250 || shown.Used.Requests != 5 {
		t.Errorf("%+v, %v", shown, err)
	}
	v.snapfs("exec", "fix", "--", "curl", "-sS", "-d", "{}", v.script("https://host.snapfs:PORT/v1/images")).want(0).has("nobody reports the tokens of POST /v1/images")
	v.snapfs("budget", "raise", "fix", "tokens", "10").want(2)
	v.snapfs("budget", "raise", "fix", "requests", "+10").want(2)
	v.snapfs("net", "--refused", "fix").has("POST /v1/messages the budget tokens of 200")
	// A fork has used what its sandbox has, and the other way round.
	v.snapfs("fork", "fix", "twin").want(0)
	v.snapfs("exec", "twin", "--", "curl", "-sS", "-d", `{"max_tokens":20}`, v.script("https://host.snapfs:PORT/v1/messages")).want(0).has(`"output_tokens":20`)
	v.snapfs("budget", "show", "fix").want(0).has("300 used", "of 300", "forked")
	refused = v.beginRefused("twin", ask[3:]...)
	v.snapfs("budget", "raise", "twin", "tokens", "+100").want(0).has("of 400", "resumed twin")
	refused().want(0).has("the budget tokens of 300 has no room", "snapfs budget raise twin tokens +N")
	v.snapfs("rm", "fix").want(0)
	v.snapfs("budget", "show", "twin").want(0).has("300 used", "of 400")
	fits(t, "budget-raise", v.snapfs("budget", "raise", "--json", "twin", "tokens", "+100").want(0).stdout)
}

// A race and a job say at once that an attempt's budget is spent, and how to raise it. Other attempts go on.
func TestARaceAndAJobSayThatABudgetIsSpent(t *testing.T) {
	v := newVault(t, `"POST https://host.snapfs:PORT/v1/*"`, "", "[budget]\ntokens = 60\nhosts = [\"host.snapfs\"]")
	ask := v.script(`test "$SNAPFS_ATTEMPT" = 2 && exit
		for n in 1 2; do curl -sSf -o /dev/null -d '{"max_tokens":20}' https://host.snapfs:PORT/v1/messages || exit 3; done`)
	why := []string{"a request was refused: the budget tokens of 60 has no room", "hint: raise tokens in the section [budget] of the profile"}
	v.snapfs("race", "--profile", v.profile, "-n", "2", "--keep", "--", "sh", "-c", ask).has(append(why, "attempt 2: passed")...)
	v.awaitEvent(events.LimitReached, 1)
	v.snapfs("job", "submit", "--profile", v.profile, "--", "sh", "-c", ask).want(0)
	v.snapfs("job", "work", "--once")
	v.snapfs("job", "show", "1").has(append(why, "failed")...)
	v.awaitEvent(events.LimitReached, 2)
}

func TestMoneyEndsAndIsRaised(t *testing.T) {
	v := newVault(t, `"POST https://host.snapfs:PORT/v1/*"`, "", "[budget]\nmoney = 0.001\nhosts = [\"host.snapfs\"]\n[prices.\"claude-*\"]\ninput = 3\ncached = 0.30\noutput = 15.00")
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	ask := []string{"exec", "fix", "--", "curl", "-sS", "-d", `{"model":"claude-x","max_tokens":20}`, v.script("https://host.snapfs:PORT/v1/messages")}
	v.snapfs("exec", "fix", "--", "curl", "-sS", "-d", `{"model":"gpt","max_tokens":20}`, v.script("https://host.snapfs:PORT/v1/messages")).want(0).has(`no section [prices] names the model`)
	for range 2 { // each costs 30 x 3 and 20 x 15 millionths
		v.snapfs(ask...).want(0).has(`"output_tokens":20`)
	}
	refused := v.beginRefused("fix", ask[3:]...)
	v.snapfs("budget", "show", "fix").want(0).has("money", "0.00078 used", "of 0.001", "claude-x", "2 requests", "cost 0.00078")
	v.snapfs("budget", "raise", "fix", "money", "0.50c").want(2)
	v.snapfs("budget", "raise", "fix", "money", "+1.50").want(0).has("of 1.501", "resumed fix")
	refused().want(0).has("the budget money of 0.001 has no room", "snapfs budget raise fix money +N")
	v.snapfs(ask...).want(0).has(`"output_tokens":20`)
	v.snapfs("budget", "show", "--json", "fix").want(0).has(`"money_millionths":1170`)
}

// beginRefused runs a command in the sandbox whose request the budget refuses, and waits for the pause. The command
// stays after its request, which may be answered before the pause. The returned function lets it end, once the sandbox
// is resumed, and waits for that.
func (v *vault) beginRefused(name string, command ...string) (wait func() outcome) {
	v.t.Helper()
	done := v.begin(append([]string{"exec", name, "--", "sh", "-c", `"$@"; until test -e raised; do sleep 0.05; done`, "sh"}, command...)...)
	v.awaitPaused(name)
	return func() outcome {
		v.t.Helper()
		v.snapfs("exec", name, "--", "touch", "raised").want(0)
		return done()
	}
}

// begin starts a command of snapfs. The returned function waits for its end.
func (v *vault) begin(args ...string) (wait func() outcome) {
	done := make(chan outcome, 1)
	cmd := v.command(args...)
	go func() { done <- v.finish(cmd) }()
	return func() outcome {
		v.t.Helper()
		select {
		case o := <-done:
			return o
		case <-time.After(3 * time.Minute):
			v.t.Fatalf("%q does not end", args)
			panic("not reached")
		}
	}
}

// awaitPaused waits until the sandbox is paused because its budget is spent.
func (v *vault) awaitPaused(name string) {
	v.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var shown struct {
			Running bool
			Paused  *struct{ Limit string }
		}
		if err := json.Unmarshal([]byte(v.snapfs("show", "--json", name).want(0).stdout), &shown); err != nil {
			v.t.Fatal(err)
		}
		if shown.Running && shown.Paused != nil && shown.Paused.Limit == "budget" {
			return
		}
	}
	v.t.Fatal("the sandbox is not paused")
}

// A session with 50,000 tokens stops within one request of them, and goes on after they are raised: nothing in it was
// ended.
func TestASessionStopsAtItsTokensAndGoesOn(t *testing.T) {
	v := newVault(t, `"POST https://host.snapfs:PORT/v1/*"`, "", "[budget]\ntokens = 50_000\nhosts = [\"host.snapfs\"]")
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	session := v.begin("exec", "fix", "--", "bash", "-c", v.script(`n=0; while ((n < 8)); do
		code=$(curl -sS -o /tmp/body -w '%{http_code}' -H "X-Api-Key: $API_KEY" -H 'X-Use: 9000' -d '{"max_tokens":1000}' https://host.snapfs:PORT/v1/messages)
		case $code in 200) n=$((n + 1)) ;; 429) cat /tmp/body ;; *) echo "status $code"; exit 1 ;; esac
	done; echo went on to $n`))
	v.awaitPaused("fix")
	if with, without := v.requests(); with != 5 || without != 0 {
		t.Errorf("the server got %d requests with the key and %d without, for 50,000 tokens", with, without)
	}
	v.snapfs("budget", "show", "fix").want(0).has("50000 used")
	v.snapfs("show", "fix").want(0).has("paused", "the budget tokens of 50000 has no room", "snapfs budget raise fix tokens +N")
	v.snapfs("exec", "fix", "--", "true").want(125).has("the sandbox is paused: the budget tokens of 50000")
	v.snapfs("budget", "raise", "fix", "tokens", "+20000").want(0).has("resumed fix")
	v.awaitPaused("fix") // again, two requests later
	if with, _ := v.requests(); with != 7 {
		t.Errorf("the server got %d requests for 70,000 tokens", with)
	}
	v.snapfs("budget", "raise", "fix", "tokens", "+20000").want(0).has("resumed fix")
	session().want(0).has("went on to 8", "snapfs budget raise fix tokens +N")
	if now := v.snapfs("show", "--json", "fix").want(0).stdout; strings.Contains(now, `"paused":`) {
		t.Errorf("it is still paused: %s", now)
	}
	// One that is paused can be removed.
	session = v.begin("exec", "fix", "--", "bash", "-c", v.script(`while curl -sS -o /dev/null -H "X-Api-Key: $API_KEY" -H 'X-Use: 9000' -d '{"max_tokens":1000}' https://host.snapfs:PORT/v1/messages; do :; done`))
	v.awaitPaused("fix")
	v.snapfs("rm", "fix").want(0)
	session()
	v.awaitEvent(events.LimitReached, 3) // one for each pause, and none for the end of the command
}

func TestTheSiteBoundsBudgets(t *testing.T) {
	treetest.NeedRoot(t)
	v := newVault(t, `"POST https://host.snapfs:PORT/v1/*"`, "", "[budget]\ntokens = 200\nhosts = [\"host.snapfs\"]")
	etc := filepath.Join(filepath.Dir(v.workspace), "etc")
	if out, err := exec.Command("cp", "-a", "/etc", etc).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	// Programs under test read the second directory; SNAPFS_TEST_PROGRAM may be one that reads the first.
	for _, name := range []string{"snapfs", "snapfs-of-tests"} {
		dir := filepath.Join(etc, name)
		path := filepath.Join(dir, "policy.toml")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755), os.WriteFile(path, []byte("[budget]\ntokens = 300\n"), 0o644), os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	bound := func(args ...string) outcome { // in a mount namespace with the site's policy
		t.Helper()
		cmd := v.command(args...)
		inside := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount --bind "$0" /etc && exec "$@"`, etc}, cmd.Args...)...)
		inside.Dir, inside.Env = cmd.Dir, cmd.Env
		return v.finish(inside)
	}
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	bound("exec", "fix", "--", "true").want(0)
	bound("budget", "raise", "fix", "tokens", "+200").want(7).has("policy.toml allows no more than tokens 300")
	bound("budget", "raise", "fix", "tokens", "+50").want(0)
	ask := []string{"exec", "fix", "--", "curl", "-sS", "-d", `{"max_tokens":20}`, v.script("https://host.snapfs:PORT/v1/messages")}
	bound(ask...).want(0).has(`"output_tokens":20`)
	v.snapfs("budget", "show", "fix").want(0).has("of 250")
	v.snapfs("budget", "raise", "fix", "tokens", "400").want(0) // before the site had a policy
	v.snapfs("stop", "fix").want(0)
	bound("exec", "fix", "--", "true").want(0)
	v.snapfs("budget", "show", "fix").want(0).has("of 300")
}

// A pause for a spent budget is recorded as other pauses are, also when the sandbox's lock is held meanwhile: lists
// show it, an automatic snapshot is taken, and there is one event.
func TestABudgetPauseIsRecorded(t *testing.T) {
	v := newVault(t, `"POST https://host.snapfs:PORT/v1/*"]`+"\n"+`snapshots = ["limit"`, "", "[budget]\ntokens = 60\nhosts = [\"host.snapfs\"]")
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	cmd := v.command("exec", "fix", "--", "bash", "-c", v.script(`touch made; echo started
		until [ "$(curl -sS -o /dev/null -w '%{http_code}' -d '{"max_tokens":20}' https://host.snapfs:PORT/v1/messages)" = 429 ]; do read -r _; done`))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatal(line, err)
	}
	cat, err := catalog.Open(v.state)
	if err != nil {
		t.Fatal(err)
	}
	h, err := cat.Lock(t.Context(), "fix")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	v.awaitEvent(events.LimitReached, 1)
	if treetest.Long(t) {
		time.Sleep(6 * time.Second) // a lock held so long is what is tested
	}
	h.Release()
	v.awaitPaused("fix")
	v.awaitEvent(events.SnapshotCreated, 1)
	if h, err = cat.Lock(t.Context(), "fix"); err != nil {
		t.Fatal(err)
	}
	h.Paused = nil // that it resumes is what the supervisor says, whatever is recorded
	err = h.Save()
	h.Release()
	if err != nil {
		t.Fatal(err)
	}
	v.snapfs("budget", "raise", "fix", "tokens", "+100").want(0).has("resumed fix")
	in.Close() //nolint:errcheck // a test
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the command does not end")
	}
	v.awaitEvent(events.CommandEnded, 1)
	v.awaitEvent(events.LimitReached, 1) // and no second one at the end
}

// awaitEvent waits until the log has n events of the kind, and fails if it has more.
func (v *vault) awaitEvent(kind string, n int) {
	v.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		switch got := strings.Count(v.snapfs("events", "--json").want(0).stdout, `"`+kind+`"`); {
		case got == n:
			return
		case got > n:
			v.t.Fatalf("%d events %s; want %d", got, kind, n)
		}
	}
	v.t.Fatalf("no event %s:\n%s", kind, v.snapfs("events").stdout)
}
