//go:build linux

package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// schemathesis makes requests from an OpenAPI document, valid and invalid ones.
const schemathesis = "schemathesis==4.32.5"

// unfuzzed returns the operations of the API that are not fuzzed, each with the reason.
func unfuzzed() map[string]string {
	return map[string]string{
		"prove": "each valid request tries for seven seconds to break out of sandboxes: a hundred of them take a quarter of an hour",
	}
}

// fuzzSettings are the settings of schemathesis. Of two operations they leave out the streams that end only with their
// client: those of events to come, and of changes in a directory that exists. request-port may be answered with 502:
// no server listens in the sandbox.
const fuzzSettings = `[[operations]]
include-operation-id = "events"
parameters = { "query.follow" = false }

[[operations]]
include-operation-id = "watch-files"
parameters = { "query.path" = "/none" }

[[operations]]
include-operation-id = "request-port"
[operations.checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 502]
`

// TestEveryRouteIsFuzzed: no request that schemathesis makes from the document is answered with a status 5xx, or not at
// all within 20 s. Only make test-long runs it: it fetches 20 MB, and takes up to five minutes.
func TestEveryRouteIsFuzzed(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	program := filepath.Join(filepath.Dir(pip(t, schemathesis)), "schemathesis")
	d := newDesk(t)
	token, err := d.command("token", "new", "--scope", "read,run,promote,cosign", "fuzz").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := d.command("rm", "--all", "--any").CombinedOutput(); err != nil {
			t.Errorf("removing what the requests made: %v: %s", err, out)
		}
	})
	address := d.serving(d.command("serve", "--listen", "127.0.0.1:0", "-C", d.work))
	seed := strconv.FormatInt(time.Now().Unix(), 10)
	args := []string{
		"run", "http://" + address + "/v1/openapi.json", "-H", "Authorization: Bearer " + strings.TrimSpace(string(token)),
		"--checks", "not_a_server_error", "--phases", "coverage,fuzzing", "--max-examples", "10", "--request-timeout", "20",
		"--continue-on-failure", "--warnings", "off", "--seed", seed,
	}
	for id := range unfuzzed() {
		args = append(args, "--exclude-operation-id", id)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = treetest.Dir(t) // for its cache
	if err := os.WriteFile(filepath.Join(cmd.Dir, "schemathesis.toml"), []byte(fuzzSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("seed %s: %v\n%s", seed, err, out)
	}
	document, err := os.ReadFile("../../docs/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	operations := strings.Count(string(document), `"operationId": `)
	m := regexp.MustCompile(`(?m)^ +Tested: (\d+)$`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no summary: %s", out)
	}
	if n, _ := strconv.Atoi(string(m[1])); n != operations-len(unfuzzed()) {
		t.Errorf("%d operations were tested, want all %d but %d", n, operations, len(unfuzzed()))
	}
}
