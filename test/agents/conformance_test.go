//go:build linux

package agents

import (
	"bufio"
	"maps"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// conformanceKnown are the scenarios of the conformance suite, by whether this server passes them. Those that it does not
// are in three groups: the suite's own tools, resources and prompts, which only a server for tests has; completions of
// arguments, and subscriptions to resources, which it does not offer and does not announce.
var conformanceKnown = map[string]bool{
	"server-initialize": true, //nolint:misspell // the suite's name
	"logging-set-level": true, "ping": true, "tools-list": true, "server-sse-multiple-streams": true,
	"resources-list": true, "prompts-list": true, "dns-rebinding-protection": true,

	"tools-call-simple-text": false, "tools-call-image": false, "tools-call-audio": false, "tools-call-embedded-resource": false,
	"tools-call-mixed-content": false, "tools-call-with-logging": false, "tools-call-error": false, "tools-call-with-progress": false,
	"tools-call-sampling": false, "tools-call-elicitation": false, "elicitation-sep1034-defaults": false, "elicitation-sep1330-enums": false,
	"resources-read-text": false, "resources-read-binary": false, "resources-templates-read": false,
	"prompts-get-simple": false, "prompts-get-with-args": false, "prompts-get-embedded-resource": false, "prompts-get-with-image": false,

	"completion-complete": false,
	"resources-subscribe": false, "resources-unsubscribe": false,
}

// TestTheConformanceSuiteOfMCP: the suite's scenarios against /mcp of a server on TCP, whose token a proxy adds, as the
// suite sends none. Only make test-long runs it: it fetches 60 MB.
func TestTheConformanceSuiteOfMCP(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	bin := npm(t, "@modelcontextprotocol/conformance@0.1.16", "node@22.23.3") // which needs that Node.js
	d := newDesk(t)
	token, err := d.command("token", "new", "--scope", "run", "suite").Output()
	if err != nil {
		t.Fatal(err)
	}
	server := d.command("serve", "--mcp", "--listen", "127.0.0.1:0", "-C", d.work)
	address := d.serving(server)
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: address})
		r.Out.Host = r.In.Host // which the suite forges
		r.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}})
	defer proxy.Close()
	out, err := d.run(nil, bin+"/conformance", "server", "--url", proxy.URL+"/mcp")
	got := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^([✓✗]) ([a-z0-9-]+): \d+ passed, \d+ failed$`).FindAllStringSubmatch(out, -1) {
		got[line[2]] = line[1] == "✓"
	}
	if len(got) == 0 {
		t.Fatalf("the suite ran no scenario: %v", err) // the error has its output; it is one when any scenario fails
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want, known := conformanceKnown[name]; !known || got[name] != want {
			t.Errorf("%s: passed %v, known %v", name, got[name], known)
		}
	}
	for name := range conformanceKnown {
		if _, ran := got[name]; !ran {
			t.Errorf("%s did not run", name)
		}
	}
}

// serving starts a server until the end of the test, and returns its address.
func (d *desk) serving(cmd *exec.Cmd) (address string) {
	d.t.Helper()
	cmd.Stderr = nil
	r, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "serving at ")
	if err != nil || !ok {
		d.t.Fatalf("%q, %v", line, err)
	}
	return address
}
