package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/api"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
	"github.com/snapfs/snapfs/serve/page"
)

func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(context.Context, string) error { return nil }))
}

// A desk is a workspace with a state directory and a server with the page.
type desk struct {
	t           *testing.T
	work, state string
	base        string // the URL, without the slash at its end
	page        *page.Page
	stop        func() error // ends the server
}

// newDesk returns a desk whose server runs in this process. A person could name the workspace so that it hurts.
func newDesk(t *testing.T) *desk {
	t.Helper()
	needed(t)
	treetest.Leaks(t)
	return openDesk(t)
}

// needed skips a test that this machine cannot run.
func needed(t *testing.T) {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.OncePerRun(t)
	treetest.NeedProgram(t, "chromium")
}

// openDesk is newDesk for a test in which processes of a browser come and go, which the caller counts.
func openDesk(t *testing.T) *desk {
	t.Helper()
	dir := treetest.Dir(t)
	d := &desk{t: t, work: dir + "/" + hostile[0], state: dir + "/state"}
	if err := errors.Join(os.Mkdir(d.work, 0o755), os.WriteFile(d.work+"/a.txt", []byte("one\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var names []string
		if err := json.Unmarshal([]byte(d.snapfs("ls", "-q", "--json")), &names); err != nil {
			t.Error(err)
		}
		if len(names) > 0 {
			d.snapfs(append([]string{"rm"}, names...)...)
		}
		d.snapfs("gc")
	})
	helper := files.NewHelper(treetest.Program(), "files")
	d.page = page.New(d.state)
	a := api.New(api.Options{
		State: d.state, Workspace: d.work, Files: helper, Version: "test", Front: d.page.Front,
		Open: func(ctx context.Context) (*engine.Engine, error) {
			return local.Open(ctx, local.Options{State: d.state, Program: treetest.Program(), Notice: func(s string) { t.Log(s) }})
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- a.Serve(ctx, api.Where{Listen: "127.0.0.1:0"}, func(address string) { ready <- address })
	}()
	select {
	case address := <-ready:
		d.base = "http://" + address
	case err := <-done:
		t.Fatal(err)
	}
	d.stop = sync.OnceValue(func() error {
		stop()
		return errors.Join(<-done, helper.Close())
	})
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *desk) snapfs(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(treetest.Program(), append([]string{"--state", d.state}, args...)...)
	cmd.Dir, cmd.Stderr = d.work, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Errorf("snapfs %q: %v", args, err)
	}
	return string(out)
}

// real returns the content of a file of the real workspace, or "" if there is none.
func (d *desk) real(name string) string {
	text, _ := os.ReadFile(d.work + "/" + name)
	return string(text)
}

// TestAReboundNameReachesNeitherPageNorAPI: nor does a name of the attacker's on a forwarded port.
func TestAReboundNameReachesNeitherPageNorAPI(t *testing.T) {
	d := newDesk(t)
	for _, path := range []string{"/", "/page/main.js", "/page/session", "/v1/sandboxes"} {
		for host, want := range map[string]int{"evil.example": http.StatusMisdirectedRequest, "localhost": 0} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.base+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Host = host + d.base[strings.LastIndexByte(d.base, ':'):]
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close() // it was read
			if got := r.StatusCode; want != 0 && got != want || want == 0 && got == http.StatusMisdirectedRequest {
				t.Errorf("%s of %s: %d", path, host, got)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
