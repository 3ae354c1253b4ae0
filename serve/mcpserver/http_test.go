package mcpserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/serve"
)

// newHTTP starts a server over HTTP whose tools have no engine.
func newHTTP(t *testing.T) string { t.Helper(); return newHTTPUnder(t, serve.Rules{Workspace: "/w"}) }

func newHTTPUnder(t *testing.T, rules serve.Rules) string {
	t.Helper()
	none := func(context.Context) (*engine.Engine, error) { return nil, errors.New("the test has none") }
	h, err := Handler(t.Context(), serve.New(rules, none), Options{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// Clients of both eras see the same tools over HTTP. Cost: milliseconds.
func TestBothErasSeeTheTools(t *testing.T) {
	url := newHTTP(t)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) < 10 {
		t.Errorf("tools: %v, %v", list, err)
	}
	for version, request := range map[string]string{
		"2025-06-18": `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, //nolint:misspell // the protocol's word
		sessionless: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
	} {
		answer := post(t, url, request, map[string]string{"Mcp-Protocol-Version": version, "Mcp-Method": "tools/list"})
		if answer.StatusCode != http.StatusOK || (answer.Header.Get("Mcp-Session-Id") != "") != (version < sessionless) {
			t.Errorf("%s: %s, session %q", version, answer.Status, answer.Header.Get("Mcp-Session-Id"))
		}
	}
}

// The client does not see a tool that the policy refuses; a call of it returns an error that names the entry.
func TestRefusedToolsAreNotOffered(t *testing.T) {
	for entry, want := range map[string]int{"sandbox_*": 0, "sandbox_race": len(toolNames) - 1, "other": len(toolNames)} {
		url := newHTTPUnder(t, serve.Rules{Workspace: "/w", Policy: catalog.Policy{Tools: &catalog.Tools{MCP: []string{entry}}}})
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		list, err := session.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != want {
			t.Errorf("%s: %d tools, want %d: %v", entry, len(list.Tools), want, err)
		}
		_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_race"})
		for _, text := range []string{`refuses it (tools.mcp "` + entry + `")`, "the refusal was not recorded: the test has none", "hint: continue without this tool"} {
			if entry != "other" && (err == nil || !strings.Contains(err.Error(), text)) {
				t.Errorf("%s: the client gets %v, want %s", entry, err, text)
			}
		}
	}
}

// A page of another origin, and a request that names another host, reach no tool. Cost: milliseconds.
func TestAnotherOriginIsRefused(t *testing.T) {
	url := newHTTP(t)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for name, header := range map[string]map[string]string{
		"origin": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
		"host":   {"Host": "evil.example"},
	} {
		if answer := post(t, url, list, header); answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", name, answer.Status)
		}
	}
}

func post(t *testing.T, url, body string, header map[string]string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	if host := header["Host"]; host != "" {
		r.Host = host
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer
}
