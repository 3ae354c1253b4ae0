//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A desk is a workspace with a state directory.
type desk struct {
	t           *testing.T
	work, state string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	treetest.Leaks(t)
	dir := treetest.Dir(t)
	d := &desk{t: t, work: dir + "/work", state: dir + "/state"}
	if err := os.Mkdir(d.work, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write("add.sh", "echo $(($1 - $2))\n")
	d.write("test.sh", "test \"$(sh add.sh 2 3)\" = 5\n")
	t.Cleanup(func() {
		out, err := d.snapfs("ls", "--json")
		if err != nil {
			t.Errorf("ls: %v\n%s", err, out)
		}
		var all []struct{ Name string }
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Errorf("ls: %v\n%s", err, out)
		}
		for _, s := range all {
			if out, err := d.snapfs("rm", s.Name); err != nil {
				t.Errorf("rm: %v\n%s", err, out)
			}
		}
	})
	return d
}

func (d *desk) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.work, name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// real returns the content of a real file, or the error as text.
func (d *desk) real(name string) string {
	data, err := os.ReadFile(filepath.Join(d.work, name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// command returns a command of snapfs in the workspace.
func (d *desk) command(args ...string) *exec.Cmd {
	cmd := exec.Command(treetest.Program(), append([]string{"--state", d.state}, args...)...)
	cmd.Dir = d.work
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	return cmd
}

func (d *desk) snapfs(args ...string) (string, error) {
	out, err := d.command(args...).Output()
	return string(out), err
}

// An agent is a client with a session.
type agent struct {
	t      *testing.T
	cs     *mcp.ClientSession
	server *exec.Cmd
}

// An answer is how the person at the client answers a question.
type answer func(text string) *mcp.ElicitResult

func accept(string) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"promote": true}}
}

// agent starts `snapfs mcp` with flags and connects to it. Without ask, the client cannot ask a person.
func (d *desk) agent(ask answer, flags ...string) *agent {
	d.t.Helper()
	o := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if ask != nil {
		o.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return ask(r.Params.Message), nil
		}
	}
	a := &agent{t: d.t, server: d.command(append([]string{"mcp"}, flags...)...)}
	a.server.Stderr = os.Stderr
	var err error
	a.cs, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(d.t.Context(), &mcp.CommandTransport{Command: a.server}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = a.cs.Close() }) // the second time, it is closed already
	return a
}

// close ends the session, and fails the test unless the server ends well with it.
func (a *agent) close() {
	a.t.Helper()
	if err := a.cs.Close(); err != nil || !a.server.ProcessState.Success() {
		a.t.Errorf("the server's end: %v, %v", err, a.server.ProcessState)
	}
}

// most is the largest result: 25,000 tokens of four bytes each, and a result has fewer bytes a token at worst.
const most = 50_000

// call calls a tool and returns its result, and the text of its error.
func (a *agent) call(tool string, args any, into any) (refused string) {
	a.t.Helper()
	r, err := a.cs.CallTool(a.t.Context(), &mcp.CallToolParams{Name: "sandbox_" + tool, Arguments: args})
	if err != nil {
		a.t.Fatalf("%s: %v", tool, err)
	}
	if r.IsError {
		if c, ok := r.Content[0].(*mcp.TextContent); ok {
			return c.Text
		}
		a.t.Fatalf("%s: %T", tool, r.Content[0])
	}
	data, err := json.Marshal(r.StructuredContent)
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil || len(data) > most {
		a.t.Fatalf("%s: %d bytes, %v: %.2000s", tool, len(data), err, data)
	}
	return ""
}

// do does the same as call, and fails the test if the tool refuses.
func (a *agent) do(tool string, args any, into any) {
	a.t.Helper()
	if text := a.call(tool, args, into); text != "" {
		a.t.Fatalf("%s %v: %s", tool, args, text)
	}
}

// refuses calls a tool that must refuse, with a text that has these parts.
func (a *agent) refuses(tool string, args any, parts ...string) {
	a.t.Helper()
	text := a.call(tool, args, nil)
	for _, part := range parts {
		if text == "" || !strings.Contains(text, part) {
			a.t.Errorf("%s %v: %q, want %q", tool, args, text, part)
		}
	}
}

// M is the arguments of a tool.
type M = map[string]any

// The parts of results that tests read.
type (
	text struct {
		Text, Tail string
		Bytes      int64
		LeftOut    int64 `json:"left_out"`
	}
	executed struct {
		Exit           int
		TimedOut       bool `json:"timed_out"`
		Stdout, Stderr text
		Output         string
	}
	raced struct {
		Winner   string
		Attempts []struct{ State, Sandbox string }
	}
	promoted struct {
		ID      string
		Changes int
	}
	listed struct {
		Sandboxes []struct {
			Sandbox string
			Running bool
		}
	}
)

// TestAnAgentEditsTestsRacesAndPromotes: the whole session, as root and as an ordinary user. Cost: three seconds each.
func TestAnAgentEditsTestsRacesAndPromotes(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Run("root", session)
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			session(t)
		}
	})
}

func session(t *testing.T) {
	d := newDesk(t)
	var asked string
	a := d.agent(func(text string) *mcp.ElicitResult { asked = text; return accept(text) })
	a.do("new", M{"name": "fix"}, nil)
	var x executed
	if a.do("exec", M{"sandbox": "fix", "command": "sh test.sh"}, &x); x.Exit != 1 {
		t.Fatalf("the test of the bug: %+v", x)
	}
	a.do("checkpoint", M{"sandbox": "fix", "name": "before"}, nil)
	a.do("exec", M{"sandbox": "fix", "command": "cat > add.sh", "stdin": "echo wrong\n"}, nil)
	a.do("rollback", M{"sandbox": "fix", "to": "before"}, nil)
	a.do("exec", M{"sandbox": "fix", "command": "sed -i s/-/+/ add.sh; sh test.sh && sh add.sh 20 22"}, &x)
	if x.Exit != 0 || x.Stdout.Text != "42\n" {
		t.Fatalf("the test of the mended file: %+v", x)
	}
	var changes struct {
		Paths []struct{ Path, Kind string }
		Patch text
	}
	a.do("diff", M{"sandbox": "fix"}, &changes)
	if len(changes.Paths) != 1 || changes.Paths[0].Path != "add.sh" || !strings.Contains(changes.Patch.Text, "+echo $(($1 + $2))") {
		t.Errorf("diff: %+v", changes)
	}
	var r raced
	a.do("race", M{"name": "r", "commands": []string{"sed -i s/-/*/ add.sh", "sed -i s/-/+/ add.sh; sleep 0.1", "exit 1"}, "check": "sh test.sh", "first": true}, &r)
	// On a busy machine the second may pass before the first has failed, which then is stopped.
	if r.Winner != "r-2" || r.Attempts[0].State != "failed" && r.Attempts[0].State != "stopped" || r.Attempts[0].Sandbox != "" {
		t.Fatalf("race: %+v", r)
	}
	if got := d.real("add.sh"); !strings.Contains(got, "-") {
		t.Fatalf("before the promotion the real file is %q", got)
	}
	d.write("new.txt", "made meanwhile\n")
	var p promoted
	a.do("promote", M{"sandbox": r.Winner}, &p)
	if d.real("add.sh") != "echo $(($1 + $2))\n" || p.Changes != 1 || p.ID == "" {
		t.Errorf("promoted %+v: %q", p, d.real("add.sh"))
	}
	for _, part := range []string{"change  add.sh\n", "sandbox r-2", "plan "} {
		if !strings.Contains(asked, part) {
			t.Errorf("the person was asked without %q:\n%s", part, asked)
		}
	}
	a.do("remove", M{"sandbox": "fix"}, nil)
	a.do("remove", M{"sandbox": "r-2"}, nil)
	var l listed
	if a.do("list", M{}, &l); len(l.Sandboxes) != 0 {
		t.Errorf("left: %+v", l)
	}
	if out, err := d.snapfs("undo", "--yes", p.ID); err != nil || !strings.Contains(d.real("add.sh"), "-") {
		t.Errorf("undo: %v %s: %q", err, out, d.real("add.sh"))
	}
	a.close()
}

// TestNothingIsPromotedWithoutAPerson: a client that cannot ask gets the command for a person, and that command
// promotes; a person who declines, or whose client invents an answer, changes nothing.
func TestNothingIsPromotedWithoutAPerson(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	mute := d.agent(nil)
	mute.do("new", M{"name": "p"}, nil)
	mute.do("exec", M{"sandbox": "p", "command": "echo new > made"}, nil)
	refused := mute.call("promote", M{"sandbox": "p"}, nil)
	if !strings.Contains(refused, "hint: snapfs ") || !strings.Contains(refused, "cannot ask") {
		t.Fatalf("refused with %q", refused)
	}
	for _, no := range []*mcp.ElicitResult{
		{Action: "decline"}, {Action: "cancel"}, {Action: "accept", Content: M{"promote": false}},
	} {
		a := d.agent(func(string) *mcp.ElicitResult { return no })
		a.refuses("promote", M{"sandbox": "p"}, "not approved", "hint: snapfs ")
		a.close()
	}
	changed := d.agent(func(text string) *mcp.ElicitResult {
		d.write("made", "real\n") // between the question and the answer
		return accept(text)
	})
	changed.refuses("promote", M{"sandbox": "p"}, "added on both sides")
	changed.close()
	more := d.agent(func(text string) *mcp.ElicitResult {
		if out, err := d.snapfs("exec", "p", "--", "sh", "-c", "rm made; echo more > second"); err != nil {
			t.Errorf("exec: %v %s", err, out)
		}
		return accept(text)
	})
	if got := d.real("made"); got != "real\n" {
		t.Errorf("without approval the real file is %q", got)
	}
	if err := os.Remove(filepath.Join(d.work, "made")); err != nil {
		t.Fatal(err)
	}
	more.refuses("promote", M{"sandbox": "p"}, "plan")
	if got := d.real("second"); !strings.Contains(got, "no such file") {
		t.Errorf("a plan that nobody has seen was promoted: %q", got)
	}
	more.do("exec", M{"sandbox": "p", "command": "rm second; echo new > made"}, nil)
	refused = mute.call("promote", M{"sandbox": "p"}, nil)
	_, command, _ := strings.Cut(refused, "hint: snapfs ")
	cmd := exec.Command("sh", "-c", treetest.Program()+" "+command)
	cmd.Dir = d.work
	if out, err := cmd.CombinedOutput(); err != nil || d.real("made") != "new\n" {
		t.Errorf("%s: %v %s: %q", command, err, out, d.real("made"))
	}
	if !strings.Contains(command, "--plan ") {
		t.Errorf("the person's command is %q", command)
	}
}
