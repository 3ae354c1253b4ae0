//go:build linux

package agents

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A wire is a connection to the program, line by line.
type wire struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	end func() error
	n   int
}

func (d *desk) wire() *wire {
	d.t.Helper()
	cmd := d.command("mcp")
	in, err := cmd.StdinPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // a program that hangs
	end := sync.OnceValue(func() error {
		defer late.Stop()
		return errors.Join(in.Close(), cmd.Wait())
	})
	d.t.Cleanup(func() { _ = end() }) // the test has seen the status, or failed
	return &wire{t: d.t, in: in, out: bufio.NewReader(out), end: end}
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

// ask sends a request and returns the reply.
func (w *wire) ask(method string, params M) (reply struct {
	Result struct {
		ResultType      string
		RequestState    string
		InputRequests   map[string]struct{ Params struct{ Message string } }
		IsError         bool
		Content         []struct{ Text string }
		ProtocolVersion string
		Tools           []struct {
			Name         string
			InputSchema  json.RawMessage
			OutputSchema json.RawMessage
			Annotations  struct {
				ReadOnlyHint, OpenWorldHint bool
				DestructiveHint             *bool
			}
		}
	}
	Error struct {
		Code    int
		Message string
	}
},
) {
	w.t.Helper()
	w.n++
	line, err := json.Marshal(M{"jsonrpc": "2.0", "id": w.n, "method": method, "params": params})
	if err != nil {
		w.t.Fatal(err)
	}
	w.send(string(line))
	text, err := w.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &reply)
	}
	if err != nil {
		w.t.Fatalf("%s: %v: %s", method, err, text)
	}
	return reply
}

// stateless returns the params of a request without a session.
func stateless(params, capabilities M) M {
	params["_meta"] = M{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         M{"name": "raw", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": capabilities,
	}
	return params
}

// TestWithoutASessionAPersonAnswersByASecondRequest: the protocol of 2026-07-28. An answer counts for exactly the
// question of this server, this plan and this call.
func TestWithoutASessionAPersonAnswersByASecondRequest(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	w := d.wire()
	call := func(tool string, args M, more M) M {
		p := stateless(M{"name": "sandbox_" + tool, "arguments": args}, M{"elicitation": M{"form": M{}}})
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	for _, name := range []string{"a", "b"} {
		w.ask("tools/call", call("new", M{"name": name}, nil))
		w.ask("tools/call", call("exec", M{"sandbox": name, "command": "echo " + name + " > made-" + name}, nil))
	}
	r := w.ask("tools/call", call("promote", M{"sandbox": "a"}, nil)).Result
	if r.ResultType != "input_required" || !strings.Contains(r.InputRequests["approve"].Params.Message, "made-a") || r.RequestState == "" {
		t.Fatalf("%+v", r)
	}
	yes := M{"approve": M{"action": "accept", "content": M{"promote": true}}}
	for what, wrong := range map[string]M{
		"an invented state":     call("promote", M{"sandbox": "a"}, M{"requestState": "aaaa", "inputResponses": yes}),
		"a changed state":       call("promote", M{"sandbox": "a"}, M{"requestState": r.RequestState[:len(r.RequestState)-4] + "AAAA", "inputResponses": yes}),
		"another sandbox":       call("promote", M{"sandbox": "b"}, M{"requestState": r.RequestState, "inputResponses": yes}),
		"other paths":           call("promote", M{"sandbox": "a", "paths": []string{"made-a"}}, M{"requestState": r.RequestState, "inputResponses": yes}),
		"no answer":             call("promote", M{"sandbox": "a"}, M{"requestState": r.RequestState}),
		"a refusal":             call("promote", M{"sandbox": "a"}, M{"requestState": r.RequestState, "inputResponses": M{"approve": M{"action": "decline"}}}),
		"an answer without yes": call("promote", M{"sandbox": "a"}, M{"requestState": r.RequestState, "inputResponses": M{"approve": M{"action": "accept", "content": M{}}}}),
	} {
		if r := w.ask("tools/call", wrong).Result; !r.IsError {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if got := d.real("made-a") + d.real("made-b"); strings.Count(got, "no such file") != 2 {
		t.Errorf("without a valid answer: %q", got)
	}
	done := w.ask("tools/call", call("promote", M{"sandbox": "a"}, M{"requestState": r.RequestState, "inputResponses": yes}))
	if done.Result.IsError || done.Result.ResultType != "complete" || d.real("made-a") != "a\n" {
		t.Errorf("%+v: %q", done, d.real("made-a"))
	}
	again := w.ask("tools/call", call("promote", M{"sandbox": "a"}, M{"requestState": r.RequestState, "inputResponses": yes})).Result
	if !again.IsError || !strings.Contains(again.Content[0].Text, "used before") {
		t.Errorf("the answer a second time: %+v", again)
	}
	mute := d.wire().ask("tools/call", stateless(M{"name": "sandbox_promote", "arguments": M{"sandbox": "b"}}, M{})).Result
	if !mute.IsError || !strings.Contains(mute.Content[0].Text, "hint: snapfs ") {
		t.Errorf("a client that cannot ask: %+v", mute)
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

// TestToolsSayWhatTheyNeedAndDestroy: each tool has both schemas, and annotations say which of them destroy.
func TestToolsSayWhatTheyNeedAndDestroy(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		w := d.wire()
		who := M{"name": "raw", "version": "1"}
		//nolint:misspell // the protocol's spelling
		if r := w.ask("initialize", M{"protocolVersion": version, "capabilities": M{}, "clientInfo": who}).Result; r.ProtocolVersion != version {
			t.Errorf("asked for %s, got %s", version, r.ProtocolVersion)
		}
		w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) //nolint:misspell // the protocol's spelling
		tools := w.ask("tools/list", M{}).Result.Tools
		var destroy []string
		for _, tool := range tools {
			if len(tool.InputSchema) == 0 || len(tool.OutputSchema) == 0 || tool.Annotations.DestructiveHint == nil || tool.Annotations.OpenWorldHint ||
				strings.Contains(string(tool.InputSchema)+string(tool.OutputSchema), `"null"`) {
				t.Errorf("%+v", tool)
			} else if *tool.Annotations.DestructiveHint {
				destroy = append(destroy, tool.Name)
			}
		}
		if got := strings.Join(destroy, " "); len(tools) != 15 || got != "sandbox_promote sandbox_remove sandbox_rollback" {
			t.Errorf("%d tools; these destroy: %s", len(tools), got)
		}
		if err := w.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestMalformedMessagesEndNothingButTheSession: no line hangs the program, and none hurts a sandbox.
func TestMalformedMessagesEndNothingButTheSession(t *testing.T) {
	treetest.OncePerRun(t)
	d := newDesk(t)
	first := d.agent(nil)
	first.do("new", M{"name": "s"}, nil)
	first.close()
	for _, line := range []string{
		"{", "garbage", "[]", "null", "\x00\xff", `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":{},"method":"x"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}`, strings.Repeat("[", 100000), strings.Repeat("x", 1<<20),
		`{"jsonrpc":"2.0","id":1,"method":"no/such"}`, `{"jsonrpc":"2.0","id":9,"result":{}}`,
	} {
		w := d.wire()
		_, _ = io.WriteString(w.in, line+"\n") // the program may have ended
		begin := time.Now()
		_ = w.end() // with any status
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%.30q: ended after %v", line, took)
		}
	}
	var x executed
	a := d.agent(nil)
	if a.do("exec", M{"sandbox": "s", "command": "cat add.sh"}, &x); x.Exit != 0 || x.Stdout.Text != d.real("add.sh") {
		t.Errorf("afterwards: %+v", x)
	}
}
