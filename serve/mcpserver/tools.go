package mcpserver

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/serve"
)

// An effect says how much a tool that the server offers to agents may change. By it a client decides whether
// to ask a person before a call.
type effect int

const (
	reads    effect = iota // it changes nothing
	adds                   // it changes a sandbox and loses nothing
	destroys               // it may lose something, or changes the real tree
)

// annotations returns the description of a tool called title and its effects for clients, which ask a person
// before some tools. outside is set if the tool may reach the network.
func annotations(title string, does effect, outside bool) *mcp.ToolAnnotations {
	destroy := does == destroys
	return &mcp.ToolAnnotations{Title: title, ReadOnlyHint: does == reads, DestructiveHint: &destroy, OpenWorldHint: &outside}
}

// add adds the tool t to the MCP server m. A call of the tool calls do, an operation of package serve, and
// returns its result.
func add[In, Out any](m *mcp.Server, t *mcp.Tool, do func(context.Context, In) (Out, error)) {
	t.InputSchema, t.OutputSchema = schemaOf[In](), schemaOf[Out]()
	mcp.AddTool(m, t, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := do(ctx, in)
		return nil, out, forModel(err)
	})
}

// withhold removes, from the tools that a client of m sees, those that the policy of the person who started
// the server forbids agents. A call of such a tool returns an error that names the policy's entry, and is an
// event.
func (s *server) withhold(m *mcp.Server) {
	refused := map[string]string{}
	for _, name := range toolNames {
		if entry := s.service.Rules.RefusesTool(name); entry != "" {
			m.RemoveTools(name)
			refused[name] = entry
		}
	}
	m.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if call, ok := r.(*mcp.CallToolRequest); ok && refused[call.Params.Name] != "" {
				return nil, forModel(s.service.RefuseTool(ctx, call.Params.Name, refused[call.Params.Name], call.Params.Arguments))
			}
			return next(ctx, method, r)
		}
	})
}

// toolNames lists the names of all tools that this server offers to agents by the Model Context Protocol.
var toolNames = []string{
	"sandbox_new", "sandbox_list", "sandbox_exec", "sandbox_start", "sandbox_wait", "sandbox_output", "sandbox_checkpoint", "sandbox_rollback",
	"sandbox_diff", "sandbox_race", "sandbox_plan", "sandbox_drift", "sandbox_refresh", "sandbox_remove", "sandbox_promote",
}

// schemaOf returns the JSON schema of the type T, an input or a result of a tool for agents. Lists and
// optional values are never null, because some clients send a list as a string if the schema allows more than
// one type.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) //nolint:forbidigo // a type of package serve that no schema can describe: every test finds it
	}
	withoutNull(s)
	return s
}

func withoutNull(s *jsonschema.Schema) {
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	for _, p := range s.Properties {
		withoutNull(p)
	}
	for _, inner := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		if inner != nil {
			withoutNull(inner)
		}
	}
}

// addTools adds every tool of the server but sandbox_promote. [server.addPromote] adds that one, since it is
// the only tool that asks a person.
func (s *server) addTools(m *mcp.Server) {
	network := s.service.Rules.Policy.Network != "none"
	tool := func(name, title, text string, does effect, outside bool) *mcp.Tool {
		return &mcp.Tool{Name: "sandbox_" + name, Description: text, Annotations: annotations(title, does, outside)}
	}
	add(m, tool("new", "New sandbox", "Clone this machine's environment, with the working directory as it is now, as a named sandbox. "+
		"With from, fork another sandbox. Costs milliseconds.", adds, false), s.service.New)
	add(m, tool("list", "List sandboxes", "List the sandboxes that agents made in this workspace.", reads, false),
		func(ctx context.Context, _ struct{}) (serve.List, error) { return s.service.List(ctx) })
	add(m, tool("exec", "Run in sandbox", "Run a command in a sandbox and wait for its end. Its changes stay in the sandbox. "+
		"To write a file, run cat > FILE with its content as stdin. Long output is shortened; sandbox_output reads the rest.", adds, network), s.service.Exec)
	add(m, tool("start", "Start in sandbox", "Start a command in the background of a sandbox: a server, or what takes longer than a minute.",
		adds, network), s.service.Start)
	add(m, tool("wait", "Wait for command", "Wait for a command that sandbox_start started, and return its state and output.", adds, false), s.service.Wait)
	add(m, tool("output", "Read output", "Read a part of the output of a command whose result was shortened.", reads, false), s.service.Output)
	add(m, tool("checkpoint", "Checkpoint", "Record the present files of a sandbox, to return to with sandbox_rollback.", adds, false), s.service.Checkpoint)
	add(m, tool("rollback", "Roll back", "Return a sandbox's files to a checkpoint, or to the state in which it was made. "+
		"Changes since the last checkpoint are lost.", destroys, false), s.service.Rollback)
	add(m, tool("diff", "Show changes", "Show what changed in a sandbox: the paths, and a patch.", reads, false), s.service.Diff)
	add(m, tool("race", "Race attempts", "Run several commands, each in a clone of its own made from one state of the real environment, "+
		"and judge them by a check or a score. Promotes nothing: promote the winner with sandbox_promote.", adds, network), s.service.Race)
	add(m, tool("plan", "Plan promotion", "Show what promoting a sandbox's changes would do to the real directory. Changes nothing.", reads, false), s.service.Plan)
	add(m, tool("drift", "Show drift", "Show what changed in the real directory since a sandbox was made.", reads, false), s.service.Drift)
	add(m, tool("refresh", "Refresh sandbox", "Merge the real directory's changes into a sandbox. Changes the sandbox only.", adds, false), s.service.Refresh)
	add(m, tool("remove", "Remove sandbox", "End a sandbox's processes and remove it with all its changes and checkpoints.", destroys, false), s.service.Remove)
}
