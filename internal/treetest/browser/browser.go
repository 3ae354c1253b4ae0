//go:build linux

// Package browser drives Chromium for tests of pages: it opens, clicks, types, evaluates expressions, and reports what
// the page requested and logged.
package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A Browser is a page of a running Chromium without a window.
type Browser struct {
	// T is the test that fails.
	T testing.TB

	*connection
	session string
	events  []event
}

// A connection is a pair of pipes through which a test controls a Chromium with the DevTools protocol: JSON
// messages, each terminated by a NUL.
type connection struct {
	to   io.Writer
	from *bufio.Reader
	id   int // of the last request
	gone bool
}

type event struct {
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Session string          `json:"sessionId"`
}

type answer struct {
	event
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// patience bounds how long a browser may take to answer, or an expression in a page to become true, before
// the test fails.
const patience = 60 * time.Second

// Start starts Chromium for the test t. The browser ends with the test and leaves no process behind.
func Start(t testing.TB) *Browser {
	t.Helper()
	treetest.OncePerRun(t)
	treetest.NeedProgram(t, "chromium")
	dir := treetest.Dir(t)
	in, to, err := os.Pipe()
	must(t, err)
	from, out, err := os.Pipe()
	must(t, err)
	// Its own sandbox needs user namespaces or a set-id helper, which root has not; the
	// browser opens only the test's files.
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--disable-gpu", "--force-prefers-reduced-motion", "--disable-dev-shm-usage", "--no-first-run", "--disable-breakpad", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--window-size=1400,900", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.ExtraFiles = []*os.File{in, out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second
	must(t, cmd.Start())
	in.Close()
	out.Close()
	b := &Browser{T: t, connection: &connection{to: to, from: bufio.NewReaderSize(from, 1<<20)}}
	stuck := time.AfterFunc(10*patience, func() { from.Close() }) // more than all cases that share the browser take
	t.Cleanup(func() {
		fmt.Fprintf(to, `{"id":0,"method":"Browser.close"}`+"\x00")
		last := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_, _ = io.Copy(io.Discard, b.from) // until it has closed its end
		err := cmd.Wait()
		last.Stop()
		stuck.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children have ended before it, as a rule
		to.Close()
		from.Close()
		if b.gone {
			t.Logf("chromium ended with %v and said:\n%s", err, said.String())
		}
	})
	b.attach("")
	return b
}

// Fresh returns another page of the same Chromium for the test t, which is a subtest of the browser's. The page
// has no cookies, storage or history of other pages, and is closed when t ends. It saves a start of Chromium, which
// takes two seconds of processor time. The caller does not use the browser's other pages meanwhile.
func (b *Browser) Fresh(t testing.TB) *Browser {
	t.Helper()
	page := &Browser{T: t, connection: b.connection}
	var context struct{ BrowserContextID string }
	page.Call("Target.createBrowserContext", nil, &context)
	t.Cleanup(func() {
		page.session = ""
		page.Call("Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID}, nil)
	})
	page.attach(context.BrowserContextID)
	return page
}

// attach makes a page and directs calls to it. context is the id of the browser context, with cookies and
// storage of its own, in which the page is; "" is the browser's first one.
func (b *Browser) attach(context string) {
	b.T.Helper()
	params := map[string]any{"url": "about:blank"}
	if context != "" {
		params["browserContextId"] = context
	}
	var target struct{ TargetID string }
	b.Call("Target.createTarget", params, &target)
	var attached struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.Call(domain+".enable", nil, nil)
	}
}

// Call calls a method of the DevTools protocol and decodes its result into result, unless that is nil. An
// error fails the test. Call saves events of the page that arrive before the result.
func (b *Browser) Call(method string, params map[string]any, result any) {
	b.T.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	must(b.T, err)
	_, err = b.to.Write(append(text, 0))
	must(b.T, err)
	for {
		a := b.next()
		switch {
		case a.ID != b.id:
			continue
		case a.Error != nil:
			b.T.Fatalf("%s: %s", method, a.Error.Message)
		case result != nil:
			must(b.T, json.Unmarshal(a.Result, result))
		}
		return
	}
}

// next reads the browser's next message of the DevTools protocol. It saves an event, and fails the test if
// the page opens a dialog.
func (b *Browser) next() (a answer) {
	b.T.Helper()
	text, err := b.from.ReadBytes(0)
	if err != nil {
		b.gone = true
		b.T.Fatalf("the browser is gone: %v", err)
	}
	must(b.T, json.Unmarshal(text[:len(text)-1], &a))
	if a.Method != "" && a.Session == b.session { // others are of a page that was closed
		b.events = append(b.events, a.event)
		if a.Method == "Page.javascriptDialogOpening" {
			b.T.Fatalf("a dialog opens: %s", a.Params)
		}
	}
	return a
}

// Open opens a URL in the browser and waits until the page is loaded. It forgets the events of the page
// before.
func (b *Browser) Open(url string) {
	b.T.Helper()
	b.events = nil
	b.Call("Page.navigate", map[string]any{"url": url}, nil)
	for !slices.ContainsFunc(b.events, func(e event) bool { return e.Method == "Page.loadEventFired" }) {
		b.next()
	}
}

// Eval evaluates a JavaScript expression in the page, waits for its promise if it returns one, and returns
// the value. An exception fails the test.
func Eval[T any](b *Browser, expression string) T {
	b.T.Helper()
	var got struct {
		Result           struct{ Value T }
		ExceptionDetails json.RawMessage
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	if got.ExceptionDetails != nil {
		b.T.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	return got.Result.Value
}

// Is waits until a JavaScript expression in the page has the value want, since the page handles a click
// asynchronously. It fails the test if that takes too long.
func (b *Browser) Is(expression string, want any) {
	b.T.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got := Eval[any](b, `(() => { try { return `+expression+` } catch (e) { return String(e) } })()`)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			b.T.Errorf("%s is %v, want %v", expression, got, want)
			return
		}
	}
}

// Press presses and releases a key in the browser's page. key is a name such as "Enter", or a character.
func (b *Browser) Press(key string) {
	b.T.Helper()
	down := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		down["text"] = key
	}
	b.Call("Input.dispatchKeyEvent", down, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// Click clicks the middle of the first element of the page that matches a CSS selector.
func (b *Browser) Click(selector string) {
	b.T.Helper()
	at := Eval[[]float64](b, `(e => { e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })(document.querySelector(`+fmt.Sprintf("%q", selector)+`))`)
	for _, what := range []string{"mousePressed", "mouseReleased"} {
		b.Call("Input.dispatchMouseEvent", map[string]any{"type": what, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

// Quiet fails the test if the page has logged a message or an error since [Browser.Open], or has sent a
// request to a URL that does not begin with urls.
func (b *Browser) Quiet(urls string) {
	b.T.Helper()
	b.Is("1", 1) // pending events have arrived
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.T.Errorf("%s: %s", e.Method, e.Params)
		case "Network.requestWillBeSent":
			var sent struct{ Request struct{ URL string } }
			must(b.T, json.Unmarshal(e.Params, &sent))
			if !strings.HasPrefix(sent.Request.URL, urls) {
				b.T.Errorf("a request: %s", sent.Request.URL)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
