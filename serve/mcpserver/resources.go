package mcpserver

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/serve"
)

// scheme begins the address of each resource, such as a sandbox's diff, that a client can read:
// snapfs://SANDBOX/KIND.
const scheme = "snapfs://"

// addResources adds to the MCP server m the resources that a client can read of each sandbox: its diff, its
// log, and its receipt (base, policy and promotions).
func (s *server) addResources(m *mcp.Server) {
	for _, kind := range []struct {
		name, text, mime string
		read             func(ctx context.Context, sandbox string) (any, error)
	}{
		{"diff", "The changes of a sandbox: paths and a patch", "application/json", func(ctx context.Context, name string) (any, error) {
			return s.service.Diff(ctx, serve.DiffRequest{Sandbox: name})
		}},
		{"log", "The background commands of a sandbox, with the end of the last one's output", "application/json", func(ctx context.Context, name string) (any, error) {
			return s.service.Log(ctx, serve.Named{Sandbox: name})
		}},
		{"receipt", "What a sandbox was made from, what it may do, and what was promoted from it", "application/json", func(ctx context.Context, name string) (any, error) {
			return s.service.Receipt(ctx, serve.Named{Sandbox: name})
		}},
	} {
		m.AddResourceTemplate(&mcp.ResourceTemplate{
			Name: kind.name, Description: kind.text, MIMEType: kind.mime, URITemplate: scheme + "{sandbox}/" + kind.name,
		}, func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			sandbox := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, scheme), "/"+kind.name)
			doc, err := kind.read(ctx, sandbox)
			if err != nil {
				return nil, err
			}
			text, err := json.MarshalIndent(doc, "", "  ")
			if err != nil {
				return nil, err
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: kind.mime, Text: string(text)}}}, nil
		})
	}
}

// addPrompts adds the prompt "try", which a person may choose in the client: it asks the model to do a task
// in a sandbox.
func (s *server) addPrompts(m *mcp.Server) {
	m.AddPrompt(&mcp.Prompt{
		Name: "try", Title: "Try it in a clone", Description: "Do a task in a sandbox and promote it once it is proved",
		Arguments: []*mcp.PromptArgument{
			{Name: "task", Description: "what to do", Required: true},
			{Name: "check", Description: "a shell command that succeeds when it is done"},
		},
	}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		text := "Do this in a sandbox of snapfs, not in the real directory: " + r.Params.Arguments["task"] +
			"\nMake the sandbox with sandbox_new, and work in it with sandbox_exec."
		if check := r.Params.Arguments["check"]; check != "" {
			text += " It is done when this succeeds there: " + check
		}
		text += "\nThen show me the changes by sandbox_diff, and call sandbox_promote."
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
	})
}
