package e2b_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// TestCommandsRunAsTheirClientsSay: by both codecs. Cost: two seconds.
func TestCommandsRunAsTheirClientsSay(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(nil)
	t.Run("binary", func(t *testing.T) { commands(t, s) })
	s.dial(connect.WithProtoJSON())
	t.Run("JSON", func(t *testing.T) { commands(t, s) })
}

func commands(t *testing.T, s *sandbox) {
	ctx := t.Context()
	r, err := s.run(shell("echo out; echo err >&2; exit 3"))
	if err != nil || r.stdout != "out\n" || r.stderr != "err\n" || r.end.ExitCode != 3 || !r.end.Exited || r.end.GetError() != "exit status 3" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = s.run(shell("head -c 3000000 /dev/zero | tr '\\0' x; exit 0")); err != nil || len(r.stdout) != 3000000 {
		t.Errorf("%d bytes of 3000000, %v", len(r.stdout), err)
	}
	began := time.Now()
	if r, err = s.run(shell("sleep 20 & echo done")); err != nil || r.stdout != "done\n" || time.Since(began) > 10*time.Second {
		t.Errorf("with a process left behind, after %v: %+v, %v", time.Since(began), r, err)
	}
	if _, err = s.run(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/no/such"}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a missing program: %v", err)
	}
	dir := "/no/such"
	if _, err = s.run(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "/bin/true", Cwd: &dir}}); err == nil {
		t.Error("no error for a missing directory")
	}

	tag := "the-cat"
	input := shell("cat; echo end")
	input.Stdin, input.Tag = nil, &tag
	pid, next, stop := s.begin(input)
	defer stop()
	list, err := s.process.List(ctx, &envd.ListRequest{})
	if err != nil || len(list.Processes) != 1 || list.Processes[0].Pid != pid || list.Processes[0].GetTag() != tag || list.Processes[0].Config.Cmd != "/bin/bash" {
		t.Errorf("%v, %v", list, err)
	}
	byTag := &envd.ProcessSelector{Selector: &envd.ProcessSelector_Tag{Tag: tag}}
	text := func(t string) *envd.ProcessInput {
		return &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: []byte(t)}}
	}
	if _, err = s.process.SendInput(ctx, &envd.SendInputRequest{Process: byTag, Input: text("one\n")}); err != nil {
		t.Error(err)
	}
	// A second client gets the output from now on, and the first one can go.
	if got := string(next().GetData().GetStdout()); got != "one\n" {
		t.Errorf("the first client got %q", got)
	}
	second, err := s.process.Connect(ctx, &envd.ConnectRequest{Process: byPID(pid)})
	if err != nil || !second.Receive() {
		t.Fatal(err)
	}
	stop()
	stream, err := s.process.StreamInput(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*envd.StreamInputRequest{
		{Event: &envd.StreamInputRequest_Start{Start: &envd.StreamInputRequest_StartEvent{Process: byPID(pid)}}},
		{Event: &envd.StreamInputRequest_Data{Data: &envd.StreamInputRequest_DataEvent{Input: text("two")}}},
		{Event: &envd.StreamInputRequest_Keepalive{}},
		{Event: &envd.StreamInputRequest_Data{Data: &envd.StreamInputRequest_DataEvent{Input: text("three\n")}}},
	} {
		if err := stream.Send(e); err != nil {
			t.Error(err)
		}
	}
	if _, err := stream.CloseAndReceive(); err != nil {
		t.Error(err)
	}
	for range 2 { // the second time is no error
		if _, err = s.process.CloseStdin(ctx, &envd.CloseStdinRequest{Process: byPID(pid)}); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			t.Error(err)
		}
	}
	var all result
	for second.Receive() {
		all.gather(second.Msg().Event)
	}
	if err := second.Err(); err != nil || all.stdout != "twothree\nend\n" || all.end.GetExitCode() != 0 {
		t.Errorf("the second client got %+v, %v", all, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	gone := byPID(pid)
	for what, err := range map[string]error{
		"SendSignal": func() error {
			_, err := s.process.SendSignal(ctx, &envd.SendSignalRequest{Process: gone, Signal: 9})
			return err
		}(),
		"CloseStdin": func() error { _, err := s.process.CloseStdin(ctx, &envd.CloseStdinRequest{Process: gone}); return err }(),
	} {
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s to a command that has ended: %v", what, err)
		}
	}

	pid, next, stop = s.begin(shell("trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.01; done"))
	defer stop()
	if got := string(next().GetData().GetStdout()); got != "up\n" {
		t.Errorf("%q", got)
	}
	if _, err := s.process.SendSignal(ctx, &envd.SendSignalRequest{Process: byPID(pid), Signal: envd.Signal_SIGNAL_SIGTERM}); err != nil {
		t.Error(err)
	}
	r = result{}
	for e := next(); e != nil; e = next() {
		r.gather(e)
	}
	if r.stdout != "got\n" || r.end.GetExitCode() != 9 {
		t.Errorf("after SIGTERM: %+v", r)
	}
	if _, err := s.process.SendSignal(ctx, &envd.SendSignalRequest{Process: byPID(pid), Signal: 3}); err == nil {
		t.Error("signal 3 is no error")
	}

	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := s.runIn(short, shell("sleep 1234; true")); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("after the deadline: %v", err)
	}
	s.d.soon("the command's child is gone", func() bool { return s.sh("pgrep -x -f 'sleep 1234' || true") == "" })
	s.d.soon("no command is left", func() bool {
		list, err := s.process.List(ctx, &envd.ListRequest{})
		return err == nil && len(list.Processes) == 0
	})
}

// TestATerminalIsOne costs half a second.
func TestATerminalIsOne(t *testing.T) {
	treetest.NeedRoot(t)
	s := newDesk(t).create(nil)
	ctx := t.Context()
	q := &envd.StartRequest{
		Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "stty size; read x; stty size; exit 5"}},
		Pty:     &envd.PTY{Size: &envd.PTY_Size{Cols: 81, Rows: 25}},
	}
	pid, next, stop := s.begin(q)
	defer stop()
	r := result{}
	for !strings.Contains(r.pty, "25 81") {
		r.gather(next())
	}
	if _, err := s.process.Update(ctx, &envd.UpdateRequest{Process: byPID(pid), Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 101, Rows: 33}}}); err != nil {
		t.Error(err)
	}
	if _, err := s.process.SendInput(ctx, &envd.SendInputRequest{Process: byPID(pid), Input: &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: []byte("\n")}}}); err != nil {
		t.Error(err)
	}
	for e := next(); e != nil; e = next() {
		r.gather(e)
	}
	if !strings.Contains(r.pty, "33 101") || r.end.GetExitCode() != 5 {
		t.Errorf("%+v", r)
	}
	q.Pty.Size.Cols = 1 << 20
	if _, err := s.run(q); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a terminal of a million columns: %v", err)
	}
}

// TestFilesAreThoseOfTheSandbox: no path of a client leads out of the sandbox. Cost: half a second.
func TestFilesAreThoseOfTheSandbox(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(nil)
	ctx := t.Context()
	get := func(path string) (int, string) {
		reply, data := d.request(http.MethodGet, "/files?path="+path, nil, s.headers()...)
		return reply.StatusCode, string(data)
	}
	put := func(path, text string) (int, string) {
		reply, data := d.request(http.MethodPost, "/files?path="+path, text, append(s.headers(), "Content-Type", "application/octet-stream")...)
		return reply.StatusCode, string(data)
	}
	if code, text := put("deep/er/f", "content"); code != http.StatusOK || !strings.Contains(text, d.work+"/deep/er/f") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := get("~/deep/er/f"); code != http.StatusOK || text != "content" {
		t.Errorf("%d %q", code, text)
	}
	d.do(http.StatusOK, http.MethodPost, "/files?path=tagged", "x", nil, append(s.headers(), "X-Metadata-Owner", "me", "X-Metadata-Kind", "k")...)
	tagged := func(e *envd.EntryInfo) bool {
		return len(e.GetMetadata()) == 2 && e.Metadata["owner"] == "me" && e.Metadata["kind"] == "k"
	}
	if r, err := s.files.Stat(ctx, &envd.StatRequest{Path: "tagged"}); err != nil || !tagged(r.Entry) {
		t.Errorf("metadata of a file: %v, %v", r, err)
	}
	if r, err := s.files.ListDir(ctx, &envd.ListDirRequest{Path: "."}); err != nil || len(r.Entries) != 3 || !tagged(r.Entries[2]) || len(r.Entries[0].Metadata) != 0 {
		t.Errorf("metadata in a list: %v, %v", r, err)
	}
	if r, err := s.files.Move(ctx, &envd.MoveRequest{Source: "tagged", Destination: "moved"}); err != nil || !tagged(r.Entry) {
		t.Errorf("metadata after a move: %v, %v", r, err)
	}
	if code, text := get("a"); code != http.StatusOK || text != "real" {
		t.Errorf("%d %q", code, text)
	}
	form := "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"m/1\"\r\n\r\none\r\n--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"m/2\"\r\n\r\ntwo\r\n--X--\r\n"
	d.do(http.StatusOK, http.MethodPost, "/files", form, nil, append(s.headers(), "Content-Type", "multipart/form-data; boundary=X")...)
	if got := s.sh("cat m/1 m/2"); got != "onetwo" {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"--X\r\n", "", "--X\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\none\r\n--X--\r\n", strings.TrimSuffix(form, "--X--\r\n")} {
		d.refuses(http.StatusBadRequest, "", http.MethodPost, "/files", bad, append(s.headers(), "Content-Type", "multipart/form-data; boundary=X")...)
	}

	// What a command of the sandbox prepares leads nowhere else.
	secret := filepath.Join(filepath.Dir(d.work), "state", "format") // of the state directory, which no sandbox has
	if _, err := os.Stat(secret); err != nil {
		t.Fatal(err)
	}
	s.sh("ln -s " + secret + " out; ln -s ../state up; ln -s /proc/1/root root; ln -s /proc/self/exe exe; ln -s loop loop; mkfifo pipe; ln -s /dev/zero zero; ln -s deep dir")
	for path, want := range map[string]int{
		"out": http.StatusNotFound, "up/format": http.StatusNotFound, secret: http.StatusNotFound, "../state/format": http.StatusNotFound,
		"loop": http.StatusBadRequest, "pipe": http.StatusBadRequest,
		"zero": http.StatusBadRequest, "dir": http.StatusBadRequest, "a%00b": http.StatusBadRequest, "": http.StatusBadRequest,
		"/proc/self/root" + secret: http.StatusBadRequest, "x" + strings.Repeat("y", 300): http.StatusBadRequest, "dir/er/f": http.StatusOK,
	} {
		if code, text := get(path); code != want {
			t.Errorf("reading %q: %d %.200s, want %d", path, code, text, want)
		}
		if want == http.StatusNotFound || want == http.StatusOK {
			continue // a write may make it, inside
		}
		if code, text := put(path, "x"); code != want {
			t.Errorf("writing %q: %d %.200s, want %d", path, code, text, want)
		}
	}
	for _, path := range []string{"out", "root" + secret, "exe", "up/format"} { // what a write makes, it makes inside
		if code, text := get(path); code == http.StatusOK {
			t.Errorf("reading %q: %s", path, text)
		}
		put(path, "changed")
	}
	if data, err := os.ReadFile(secret); err != nil || strings.Contains(string(data), "changed") {
		t.Errorf("the real file: %q, %v", data, err)
	}

	stat := func(path string) (*envd.EntryInfo, error) {
		r, err := s.files.Stat(ctx, &envd.StatRequest{Path: path})
		if err != nil {
			return nil, err
		}
		return r.Entry, nil
	}
	if i, err := stat("dir"); err != nil || !i.IsSymlink || i.Type != envd.FileType_FILE_TYPE_DIRECTORY || i.GetSymlinkTarget() != "deep" {
		t.Errorf("%v, %v", i, err)
	}
	if i, err := stat("a"); err != nil || i.Type != envd.FileType_FILE_TYPE_FILE || i.Size != 4 || i.Mode != 0o644 || i.Permissions != "-rw-r--r--" || i.Owner != "root" || i.Path != d.work+"/a" {
		t.Errorf("%v, %v", i, err)
	}
	names := func(path string, depth uint32) (names []string) {
		r, err := s.files.ListDir(ctx, &envd.ListDirRequest{Path: path, Depth: depth})
		if err != nil {
			t.Error(err)
			return nil
		}
		for _, e := range r.Entries {
			names = append(names, strings.TrimPrefix(e.Path, d.work+"/"))
		}
		return names
	}
	if got := names("deep", 0); !slices.Equal(got, []string{"deep/er"}) {
		t.Error(got)
	}
	if got := names("deep", 9); !slices.Equal(got, []string{"deep/er", "deep/er/f"}) {
		t.Error(got)
	}
	for path, want := range map[string]connect.Code{"a": connect.CodeInvalidArgument, "nope": connect.CodeNotFound, "a\x00": connect.CodeInvalidArgument} {
		if _, err := s.files.ListDir(ctx, &envd.ListDirRequest{Path: path}); connect.CodeOf(err) != want {
			t.Errorf("listing %q: %v", path, err)
		}
	}
	if _, err := s.files.MakeDir(ctx, &envd.MakeDirRequest{Path: "new/dir"}); err != nil {
		t.Error(err)
	}
	if _, err := s.files.MakeDir(ctx, &envd.MakeDirRequest{Path: "new/dir"}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Error(err)
	}
	if r, err := s.files.Move(ctx, &envd.MoveRequest{Source: "a", Destination: "new/place/b"}); err != nil || r.Entry.Path != d.work+"/new/place/b" {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.files.Move(ctx, &envd.MoveRequest{Source: "a", Destination: "c"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	for range 2 { // the second time it is gone, which is no error
		if _, err := s.files.Remove(ctx, &envd.RemoveRequest{Path: "new"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := stat("new"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
}

// TestAWatchReportsChanges costs half a second.
func TestAWatchReportsChanges(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.files.WatchDir(ctx, &envd.WatchDirRequest{Path: d.work, Recursive: true, IncludeEntry: true})
	if err != nil || !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatal(err, stream.Err())
	}
	polled, err := s.files.CreateWatcher(ctx, &envd.CreateWatcherRequest{Path: "."})
	if err != nil {
		t.Fatal(err)
	}
	s.sh("mkdir -p d/e; echo x > d/e/f; mv a b; chmod 600 b; rm b")
	d.do(http.StatusOK, http.MethodPost, "/files?path=up", "content", nil, s.headers()...)
	d.do(http.StatusOK, http.MethodPost, "/files?path=up", "again", nil, s.headers()...)
	s.sh("touch last")
	var seen []string
	for stream.Receive() {
		e := stream.Msg().GetFilesystem()
		if e == nil {
			continue
		}
		seen = append(seen, strings.ToLower(strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_"))+" "+e.Name)
		if e.Name == "last" {
			if e.Entry == nil || e.Entry.Path != d.work+"/last" {
				t.Errorf("the entry of %v", e)
			}
			break
		}
	}
	want := []string{"create d", "create d/e", "create d/e/f", "rename a", "create b", "chmod b", "remove b", "create up", "write up", "create last"}
	for _, w := range want {
		if !slices.Contains(seen, w) {
			t.Errorf("no %q among %q", w, seen)
		}
	}
	if i := strings.Count(strings.Join(seen, "\n"), "write up"); i != 2 {
		t.Errorf("%d writes of an uploaded file: %q", i, seen)
	}
	if strings.Contains(strings.Join(seen, "\n"), "partial") {
		t.Errorf("%q", seen)
	}
	var stored []string
	d.soon("the other watch has the events", func() bool {
		r, err := s.files.GetWatcherEvents(ctx, &envd.GetWatcherEventsRequest{WatcherId: polled.WatcherId})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events {
			stored = append(stored, e.Name)
		}
		return slices.Contains(stored, "last")
	})
	if slices.Contains(stored, "d/e") {
		t.Errorf("a watch of one directory has %q", stored)
	}
	if _, err := s.files.RemoveWatcher(ctx, &envd.RemoveWatcherRequest{WatcherId: polled.WatcherId}); err != nil {
		t.Error(err)
	}
	if _, err := s.files.GetWatcherEvents(ctx, &envd.GetWatcherEventsRequest{WatcherId: polled.WatcherId}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	for path, want := range map[string]connect.Code{"nope": connect.CodeNotFound, "up": connect.CodeInvalidArgument} {
		if _, err := s.files.CreateWatcher(ctx, &envd.CreateWatcherRequest{Path: path}); connect.CodeOf(err) != want {
			t.Errorf("watching %s: %v", path, err)
		}
	}
}

// TestAPortIsReachedByItsHost costs half a second.
func TestAPortIsReachedByItsHost(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "python3")
	d := newDesk(t)
	s := d.create(M{"network": M{"allowPublicTraffic": false}})
	if !strings.HasPrefix(s.Domain, "localhost:") || s.Traffic == "" {
		t.Fatalf("%+v", s)
	}
	host := "8123-" + s.SandboxID + "." + s.Domain
	_, next, stop := s.begin(shell("exec python3 -u -m http.server 8123 --bind 127.0.0.1"))
	defer stop()
	for r := (result{}); !strings.Contains(r.stdout, "Serving"); {
		e := next()
		if e == nil {
			t.Fatalf("%+v", r)
		}
		r.gather(e)
	}
	reply, data := d.request(http.MethodGet, "/a", nil, "Host", host, "E2b-Traffic-Access-Token", s.Traffic)
	if reply.StatusCode != http.StatusOK || string(data) != "real" {
		t.Errorf("%d %s", reply.StatusCode, data)
	}
	d.refuses(http.StatusForbidden, "require", http.MethodGet, "/a", nil, "Host", host)

	// A connection that is upgraded, as one of a WebSocket is, leads to the port both ways.
	_, next, stopEcho := s.begin(shell(`exec python3 -u -c '
import socket
l = socket.create_server(("127.0.0.1", 8125)); print("up\n", end=""); c = l.accept()[0]
while not c.recv(4096).endswith(b"\r\n\r\n"): pass
c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
while True: c.sendall(c.recv(4096).upper())'`))
	defer stopEcho()
	if got := string(next().GetData().GetStdout()); got != "up\n" {
		t.Fatalf("%q", got)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 8125-%s.%s\r\nConnection: Upgrade\r\nUpgrade: echo\r\nE2b-Traffic-Access-Token: %s\r\n\r\n", s.SandboxID, s.Domain, s.Traffic)
	reader := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(reader, nil)
	if err != nil || upgraded.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", upgraded, err)
	}
	for _, word := range []string{"one", "two"} {
		fmt.Fprint(conn, word)
		got := make([]byte, 3)
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != strings.ToUpper(word) {
			t.Errorf("%q, %v", got, err)
		}
	}
	d.refuses(http.StatusBadGateway, "port is not open", http.MethodGet, "/a", nil, "Host", "8124-"+s.SandboxID+"."+s.Domain, "E2b-Traffic-Access-Token", s.Traffic)
	d.refuses(http.StatusBadGateway, "was not found", http.MethodGet, "/a", nil, "Host", "8123-other."+s.Domain)
	d.refuses(http.StatusMisdirectedRequest, "host", http.MethodGet, "/a", nil, "Host", "8123-"+s.SandboxID+".evil.example")
}
