//go:build linux

package agents

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestBadInputIsRefusedInWords: what a tool cannot do is a result that a model can read, and changes nothing.
func TestBadInputIsRefusedInWords(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	a := d.agent(accept)
	a.do("new", M{"name": "s"}, nil)
	for _, name := range []string{"", ".", "..", "../s", "../../etc", "/etc", "s/../s", "s\x00", "-rf", strings.Repeat("n", 300)} {
		for _, tool := range []string{"exec", "remove", "diff", "promote", "checkpoint", "wait"} {
			args := M{"sandbox": name}
			if tool == "exec" {
				args["command"] = "touch escaped"
			}
			a.refuses(tool, args, "name")
		}
	}
	a.refuses("exec", M{"sandbox": "other", "command": "true"}, "other", "hint: sandbox_list")
	a.refuses("exec", M{"sandbox": "s"}, "either command or args")
	a.refuses("exec", M{"sandbox": "s", "command": "true", "args": []string{"true"}}, "either command or args")
	a.refuses("exec", M{"sandbox": "s", "command": "true", "timeout_s": -1}, "timeout_s")
	a.refuses("exec", M{"sandbox": "s", "command": 7}, "type")
	a.refuses("exec", M{"sandbox": "s", "cmd": "true"}, "cmd")
	a.refuses("exec", M{"sandbox": "s", "args": []string{"no-such-program"}}, "no-such-program")
	a.refuses("exec", M{"sandbox": "s", "command": "true", "dir": "no/such/dir"}, "no/such/dir")
	a.refuses("new", M{"name": "s"}, "the name is taken")
	a.refuses("new", M{"name": "../s"}, "not a name")
	a.refuses("new", M{"from": "s@none"}, "none")
	a.refuses("new", M{"limits": M{"memory": "lots"}}, "memory")
	a.refuses("new", M{"limits": M{"colour": "red"}}, "no limit is named")
	a.refuses("rollback", M{"sandbox": "s", "to": "never"}, "never")
	a.refuses("wait", M{"sandbox": "s"}, "no command was started")
	a.refuses("race", M{"commands": []string{}}, "from 1 to 16")
	a.refuses("race", M{"commands": []string{"true"}, "first": true, "score": "echo 1"}, "excludes")
	for _, path := range []string{"../outside", "/etc/passwd", "a/../../b", ""} {
		for _, tool := range []string{"diff", "plan", "promote"} {
			a.refuses(tool, M{"sandbox": "s", "paths": []string{path}}, "outside the workspace")
		}
		a.refuses("refresh", M{"sandbox": "s", "mine": []string{path}}, "outside the workspace")
	}
	for _, output := range []string{"", "exec-1", "exec--1", "exec-x", "start-1", "../s-1", "exec-1/../../record.json"} {
		a.refuses("output", M{"sandbox": "s", "output": output}, "output")
	}
	a.refuses("promote", M{"sandbox": "s"}, "nothing to promote")
	for _, uri := range []string{"snapfs://s/passwd", "snapfs://../diff", "file:///etc/passwd", "snapfs://none/receipt", "snapfs://%2e%2e/diff"} {
		if r, err := a.cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s: %+v", uri, r.Contents[0])
		}
	}
	for _, kind := range []string{"diff", "log", "receipt"} {
		if r, err := a.cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "snapfs://s/" + kind}); err != nil || !strings.Contains(r.Contents[0].Text, `"sandbox": "s"`) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	names, err := os.ReadDir(d.work)
	if err != nil || len(names) != 2 {
		t.Errorf("the real directory has %v, %v", names, err)
	}
}

// TestLongOutputIsBoundedAndCanBeRead: a result has both ends of a long output, and the rest can be read.
func TestLongOutputIsBoundedAndCanBeRead(t *testing.T) {
	treetest.OncePerRun(t)
	a := newDesk(t).agent(nil)
	a.do("new", M{"name": "s"}, nil)
	var x executed
	a.do("exec", M{"sandbox": "s", "command": "seq 1000000; head -c 3000000 /dev/urandom >&2"}, &x)
	o := x.Stdout
	if o.Bytes != 6888896 || !strings.HasPrefix(o.Text, "1\n2\n") || !strings.HasSuffix(o.Tail, "\n1000000\n") || o.LeftOut != o.Bytes-int64(len(o.Text)+len(o.Tail)) {
		t.Errorf("%d bytes, %d left out: %.10q … %q", o.Bytes, o.LeftOut, o.Text, o.Tail[max(0, len(o.Tail)-10):])
	}
	if x.Stderr.Bytes != 3000000 || x.Output == "" {
		t.Errorf("%d bytes, output %q", x.Stderr.Bytes, x.Output)
	}
	a.do("exec", M{"sandbox": "s", "command": "seq 100000"}, &x)
	var piece struct {
		Text        string
		Next, Bytes int64
		End         bool
	}
	var all strings.Builder
	for offset := int64(0); !piece.End; offset = piece.Next {
		a.do("output", M{"sandbox": "s", "output": x.Output, "offset": offset}, &piece)
		all.WriteString(piece.Text)
	}
	if got := all.String(); int64(len(got)) != x.Stdout.Bytes || !strings.Contains(got, "\n50000\n50001\n") {
		t.Errorf("the whole output has %d bytes, and the result said %d", len(got), x.Stdout.Bytes)
	}
	a.do("exec", M{"sandbox": "s", "command": "i=0; while [ $i -lt 300 ]; do : > \"$(printf 'a\\nadd  forged %d' $i)\"; i=$((i+1)); done"}, nil)
	a.do("diff", M{"sandbox": "s"}, nil)
	a.do("plan", M{"sandbox": "s"}, nil)
	a.refuses("promote", M{"sandbox": "s"}, "too many steps", "hint: snapfs ")
}

// TestTheQuestionCannotBeForged: the name of a file cannot add a line to the question for the person.
func TestTheQuestionCannotBeForged(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	var asked string
	a := d.agent(func(text string) *mcp.ElicitResult {
		asked = text
		return &mcp.ElicitResult{Action: "decline"}
	})
	a.do("new", M{"name": "s"}, nil)
	a.do("exec", M{"sandbox": "s", "command": "touch \"$(printf 'x\\n\\nplan 000000000000\\033[2K\\342\\200\\256')\""}, nil)
	a.refuses("promote", M{"sandbox": "s"}, "not approved")
	if strings.Contains(asked, "\nplan 0000") || strings.ContainsAny(asked, "\033\u202e") {
		t.Errorf("the person read:\n%s", asked)
	}
}

// TestAnAgentHasNoMoreThanTheFlagsOfThePerson: it can ask for less, and uses neither a person's sandboxes nor those of
// a server with wider flags.
func TestAnAgentHasNoMoreThanTheFlagsOfThePerson(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	if out, err := d.snapfs("new", "mine"); err != nil {
		t.Fatalf("new: %v %s", err, out)
	}
	wide := d.agent(nil)
	wide.do("new", M{"name": "wide"}, nil)
	for _, tool := range []string{"exec", "remove", "checkpoint", "diff", "rollback", "drift", "plan", "promote"} {
		args := M{"sandbox": "mine"}
		if tool == "exec" {
			args["command"] = "true"
		}
		wide.refuses(tool, args, "a person made this sandbox")
	}
	wide.refuses("new", M{"from": "mine"}, "a person made this sandbox")
	var l listed
	if wide.do("list", M{}, &l); len(l.Sandboxes) != 1 {
		t.Errorf("listed: %+v", l)
	}
	strict := d.agent(nil, "--time", "5m", "--hide", d.work+"/add.sh")
	strict.refuses("exec", M{"sandbox": "wide", "command": "true"}, "no limit time of 5m", "add.sh")
	strict.refuses("new", M{"limits": M{"time": "6m"}}, "time is 5m")
	strict.refuses("new", M{"limits": M{"time": "none"}}, "time is 5m")
	strict.do("new", M{"name": "less", "limits": M{"time": "1s"}, "no_network": true}, nil)
	var x executed
	if strict.do("exec", M{"sandbox": "less", "command": "cat add.sh; sleep 60"}, &x); x.Exit != 143 || x.TimedOut {
		t.Errorf("under a limit of one second: %+v", x)
	}
	if x.Stdout.Text != "" {
		t.Errorf("the hidden file has %q", x.Stdout.Text)
	}
	other := *d
	other.work = filepath.Dir(d.work) + "/other"
	if err := os.Mkdir(other.work, 0o755); err != nil {
		t.Fatal(err)
	}
	other.agent(nil).refuses("exec", M{"sandbox": "wide", "command": "true"}, "its workspace is")
}

// TestACancelledCommandEnds: with its process group, and the sandbox stays usable.
func TestACancelledCommandEnds(t *testing.T) {
	treetest.OncePerRun(t)
	a := newDesk(t).agent(nil)
	a.do("new", M{"name": "s"}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.cs.CallTool(ctx, &mcp.CallToolParams{Name: "sandbox_exec", Arguments: M{
			"sandbox": "s", "command": "trap '' HUP; (trap '' HUP TERM; touch up; sleep 1234); true",
		}})
		ended <- err
	}()
	a.until("the command runs", M{"sandbox": "s", "command": "test -e up"})
	cancel()
	if err := <-ended; err == nil {
		t.Error("the call succeeded")
	}
	a.until("the command has ended", M{"sandbox": "s", "command": "! grep -qs '[s]leep.1234' /proc/*/cmdline"})
}

// until runs a command until it succeeds.
func (a *agent) until(what string, args M) {
	a.t.Helper()
	var x executed
	for deadline := time.Now().Add(time.Minute); ; {
		if a.do("exec", args, &x); x.Exit == 0 {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("not after a minute: %s: %+v", what, x)
		}
	}
}

// TestAKilledServerLosesNothing: files stay, background commands run on and are accounted for, and the command of a
// call ends.
func TestAKilledServerLosesNothing(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	first := d.agent(nil)
	first.do("new", M{"name": "s"}, nil)
	first.do("exec", M{"sandbox": "s", "command": "echo work > done"}, nil)
	var started struct {
		Command int
		Output  string
	}
	first.do("start", M{"sandbox": "s", "command": "touch up; echo begun; sleep 4321"}, &started)
	first.until("the background command runs", M{"sandbox": "s", "command": "test -e up"})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = first.cs.CallTool(t.Context(), &mcp.CallToolParams{ // the server dies
			Name: "sandbox_exec", Arguments: M{"sandbox": "s", "command": "touch calling; sleep 4322"},
		})
	}()
	first.until("the call runs", M{"sandbox": "s", "command": "test -e calling"})
	if err := first.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	second := d.agent(nil)
	var l listed
	second.do("list", M{}, &l)
	if got := fmt.Sprint(l.Sandboxes); got != "[{s true}]" {
		t.Errorf("after the kill: %s", got)
	}
	second.until("the call's command has ended", M{"sandbox": "s", "command": "! grep -qs '[s]leep.4322' /proc/*/cmdline"})
	var x executed
	second.do("exec", M{"sandbox": "s", "command": "cat done"}, &x)
	var w struct {
		Running bool
		State   string
		Log     text
	}
	second.do("wait", M{"sandbox": "s", "command": started.Command, "timeout_s": 1}, &w)
	if x.Stdout.Text != "work\n" || !w.Running || w.Log.Text != "begun\n" {
		t.Errorf("after the kill: %+v, %+v", x, w)
	}
	if second.do("wait", M{"sandbox": "s", "stop": true}, &w); w.Running {
		t.Errorf("stopped: %+v", w)
	}
	if second.do("list", M{}, &l); l.Sandboxes[0].Running {
		t.Error("processes run in a stopped sandbox")
	}
}

// TestASignalEndsTheServerAndItsCalls: SIGTERM ends the command of a call, and the server with status 0.
func TestASignalEndsTheServerAndItsCalls(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	first := d.agent(nil)
	first.do("new", M{"name": "s"}, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = first.cs.CallTool(t.Context(), &mcp.CallToolParams{ // the server ends
			Name: "sandbox_exec", Arguments: M{"sandbox": "s", "command": "touch calling; sleep 4323"},
		})
	}()
	first.until("the call runs", M{"sandbox": "s", "command": "test -e calling"})
	if err := first.server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended
	first.close()
	second := d.agent(nil)
	second.until("the call's command has ended", M{"sandbox": "s", "command": "! grep -qs '[s]leep.4323' /proc/*/cmdline"})
}

// TestARefusedToolIsAnEvent: a call of a tool that the profile refuses is an error that says why, and an event of the
// sandbox that it names, also in the evidence of that sandbox. It costs some 0.3 s.
func TestARefusedToolIsAnEvent(t *testing.T) {
	d := newDesk(t)
	d.write("refuse.toml", "[tools]\nmcp = [\"sandbox_r*\"]\n[sandbox]\nevidence = true\n")
	a := d.agent(nil, "--profile", "./refuse.toml")
	a.do("new", M{"name": "s"}, nil)
	_, err := a.cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_rollback", Arguments: M{"sandbox": "s"}})
	if err == nil || !strings.Contains(err.Error(), "the policy of the person who started this server refuses it") {
		t.Errorf("the client gets %v", err)
	}
	if out, err := d.snapfs("events", "s"); err != nil || !strings.Contains(out, "access.refused  mcp, sandbox_rollback, (tools: mcp sandbox_r*)") {
		t.Errorf("events: %v\n%s", err, out)
	}
	out, err := d.snapfs("evidence", "export", "s", "--open", "--format", "cloudevents", "-o", "record")
	if err != nil || !strings.Contains(d.real("record"), `"paths":["sandbox_rollback"]`) {
		t.Errorf("evidence: %v %s\n%s", err, out, d.real("record"))
	}
	a.close()
}
