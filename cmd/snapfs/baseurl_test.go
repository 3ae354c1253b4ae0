//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// clientsOfABaseURL trust no CA: all but the first two must get nothing.
const clientsOfABaseURL = `
unset SSL_CERT_FILE CURL_CA_BUNDLE
curl -sSf -H "X-Api-Key: $API_KEY" $ANTHROPIC_BASE_URL/v1/echo
curl -sSf --http2-prior-knowledge -H "X-Api-Key: $API_KEY" $ANTHROPIC_BASE_URL/v1/h2c
curl -sS -i -H "X-Api-Key: $API_KEY" -o /dev/null -D - $ANTHROPIC_BASE_URL/v1/moved
curl -sS -H "X-Api-Key: $API_KEY" $ANTHROPIC_BASE_URL/admin
curl -sS $ANTHROPIC_BASE_URL/admin
curl -sS --path-as-is -H "X-Api-Key: $API_KEY" $ANTHROPIC_BASE_URL/v1/../admin
curl -sS -H "X-Api-Key: $API_KEY" -H "Host: other.example" $ANTHROPIC_BASE_URL/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" -H "Host: host.snapfs:PORT" $ANTHROPIC_BASE_URL/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" -x $ANTHROPIC_BASE_URL http://host.snapfs:PORT/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" -x $ANTHROPIC_BASE_URL $ANTHROPIC_BASE_URL/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" -x $ANTHROPIC_BASE_URL https://host.snapfs:PORT/v1/echo
curl -sS -X DELETE -H "X-Api-Key: $API_KEY" $ANTHROPIC_BASE_URL/v1/echo
curl -sS -X PUT $ANTHROPIC_BASE_URL/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" -H "Connection: Upgrade" -H "Upgrade: websocket" $ANTHROPIC_BASE_URL/v1/echo
curl -sS -k -H "X-Api-Key: $API_KEY" https${ANTHROPIC_BASE_URL#http}/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" http://198.18.0.1:8002/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" http://198.18.0.1/v1/echo
curl -sS -H "X-Api-Key: $API_KEY" http://198.19.0.1:8001/v1/echo
curl -sS -H "X-Api-Key: SnapfsPlaceholderaaaaaaaaaaaaaaaaaaaaaaaaaa" $ANTHROPIC_BASE_URL/v1/echo
env | grep ANTHROPIC
true
`

// TestABaseURLReachesOneServer by plain HTTP, without a CA, and nothing else.
func TestABaseURLReachesOneServer(t *testing.T) {
	v := newVault(t, `"GET,POST,PUT https://host.snapfs:PORT"`, `base-url = "ANTHROPIC_BASE_URL"`+"\nmethods = [\"GET\", \"POST\"]\npaths = [\"/v1/*\"]", "")
	v.snapfs("new", "--profile", v.profile, "fix").want(0)
	all := v.snapfs("exec", "fix", "--", "bash", "-c", v.script(clientsOfABaseURL)).want(0)
	v.clean("the output", []byte(all.all))
	all.has("Location: http://198.18.0.1:8001/v1/echo?page=2", "the secret KEY is not for the path /admin", "the request is for \\\"other.example\\\"", "the base URL is no proxy",
		"the secret KEY is not for the method DELETE", "the secret KEY is not for the method PUT", "an upgrade to", "a placeholder of another sandbox", "ANTHROPIC_BASE_URL=http://198.18.0.1:8001")
	// The first of the clients, the redirect, and curl's one with prior knowledge, if the server inside speaks it.
	with, without := v.requests()
	if with != 2 || without != 0 {
		t.Errorf("the server got the key %d times, and %d requests without it:\n%s\n%s", with, without, all.all, strings.Join(append(v.seen, v.other...), "\n"))
	}
	v.snapfs("net", "fix").has("GET /v1/echo by GET,POST,PUT https://host.snapfs:"+v.port+", with KEY", "TLS, to a base URL", "no name leads to this address")
	v.snapfs("events").has("the base URL is no proxy", "the secret KEY is not for the path /admin")
	v.snapfs("show", "fix").has("base URL ANTHROPIC_BASE_URL=https://host.snapfs:" + v.port)
	// Another sandbox, also one whose own secret has no base URL, does not reach it.
	v.snapfs("run", "--discard", "--net", "allow:"+v.script("host.snapfs:PORT"), "--secret", "KEY=env:"+hostKey+"@"+v.script("host.snapfs:PORT"), "--",
		"curl", "-sS", "http://198.18.0.1:8001/v1/echo").want(7)
	if with, without := v.requests(); with != 2 || without != 0 {
		t.Errorf("after another sandbox: %d requests with the key, %d without", with, without)
	}
	v.cleanTree(v.state)
}

// TestABaseURLHasTheServersPath: the variable's URL has it, and requests beside it go nowhere.
func TestABaseURLHasTheServersPath(t *testing.T) {
	v := newVault(t, `"host.snapfs:PORT"`, `base-url = "MY_URL=https://host.snapfs:PORT/v1/x"`, "[budget]\nrequests = 2\n")
	got := v.snapfs("run", "--discard", "--profile", v.profile, "--", "sh", "-c",
		`echo $MY_URL; curl -sSf -H "X-Api-Key: $API_KEY" $MY_URL/echo; for other in / /v1 /v1/xy /v1/x/../y; do curl -sS --path-as-is http://198.18.0.1:8001$other; done; curl -sSf $MY_URL; curl -sS $MY_URL/third`).want(0)
	got.has("http://198.18.0.1:8001/v1/x\n", "the base URL of the secret KEY leads to /v1/x only", "the budget")
	if with, without := v.requests(); with != 1 || without != 1 {
		t.Errorf("%d requests with the key, %d without: %s", with, without, got.all)
	}
}

// TestRealPackageManagersUseABaseURL: pip and npm, with the token that their server wants. Cost: five seconds.
func TestRealPackageManagersUseABaseURL(t *testing.T) {
	if !treetest.Long(t) {
		return
	}
	for name, one := range map[string]struct{ variable, path, command string }{
		"pip3": {"PIP_INDEX_URL", "/simple", "env -u PIP_CERT -u REQUESTS_CA_BUNDLE pip3 download --no-deps --disable-pip-version-check --retries 0 snapfs-example; true"},
		"npm":  {"npm_config_registry", "", "env -u NODE_EXTRA_CA_CERTS npm view snapfs-example version --fetch-retries 0; true"},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.NeedProgram(t, name)
			v := newVault(t, `"GET https://host.snapfs:PORT"`, `base-url = "`+one.variable+`"`, "")
			got := v.snapfs("run", "-q", "--discard", "--env", "HOME="+v.workspace, "--profile", v.profile, "--", "sh", "-c", one.command).want(0)
			v.mu.Lock()
			defer v.mu.Unlock()
			if !strings.Contains(strings.Join(v.seen, "\n"), "GET "+one.path+"/snapfs-example") || len(v.other) > 0 { // npm also looks for a newer npm
				t.Errorf("the server got %q and %q\n%s", v.seen, v.other, got.all)
			}
			v.clean("the output", []byte(got.all))
		})
	}
}
