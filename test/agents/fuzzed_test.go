//go:build linux

package agents

import (
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

// unfuzzed are the operations of the API whose response ends with the client or with what it started, and request-port,
// whose response is that of a server inside, or 502 where there is none.
var unfuzzed = []string{"events", "watch-files", "command-output", "terminal", "prove", "race", "request-port"}

// TestEveryRouteIsFuzzed: no request that schemathesis makes from the document is answered with a status 5xx, or not at
// all within 20 s. Only make test-long runs it: it fetches 20 MB, and takes a minute.
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
	for _, id := range unfuzzed {
		args = append(args, "--exclude-operation-id", id)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = treetest.Dir(t) // for its cache
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("seed %s: %v\n%s", seed, err, out)
	}
	m := regexp.MustCompile(`(?m)^ +Tested: (\d+)$`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no summary: %s", out)
	}
	if n, _ := strconv.Atoi(string(m[1])); n < 50 {
		t.Errorf("%d operations were tested, want 50", n)
	}
}
