package agenthook

import (
	"encoding/json"
	"fmt"
	"slices"
)

// An event is the JSON message that a coding agent sends to a hook (a command that the agent runs) about its
// session. Agents differ in the events that they send and agree in these fields; those that an event does not
// have are empty.
type event struct {
	Name         string          `json:"hook_event_name"`
	Session      string          `json:"session_id"`
	Dir          string          `json:"cwd"`
	Prompt       string          `json:"prompt_id"`
	Turn         string          `json:"turn_id"` // of Codex, for Prompt
	Subagent     string          `json:"agent_id"`
	Tool         string          `json:"tool_name"`
	Input        json.RawMessage `json:"tool_input"`
	Response     json.RawMessage `json:"tool_response"`
	Call         string          `json:"tool_use_id"`
	Calls        []call          `json:"tool_calls"`
	Worktree     string          `json:"name"`
	WorktreePath string          `json:"worktree_path"`
}

// A call is one call of a tool by a coding agent, such as the edit of a file, as the agent reports it in a
// hook event.
type call struct {
	Tool  string          `json:"tool_name"`
	Input json.RawMessage `json:"tool_input"`
	ID    string          `json:"tool_use_id"`
}

// parse parses data, the JSON text of a coding agent's hook event. The name of the event, from the command
// line, replaces the one in the text, which an agent may leave out.
func parse(name string, data []byte) (*event, error) {
	ev := &event{}
	if err := json.Unmarshal(data, ev); err != nil {
		return nil, fmt.Errorf("reading the event %s: %w", name, err)
	}
	ev.Name = name
	return ev, nil
}

// turn returns the id of the person's prompt to the agent that led to the event, or "" if the agent does not
// give it.
func (ev *event) turn() string {
	if ev.Prompt != "" {
		return ev.Prompt
	}
	return ev.Turn
}

// runsShell reports whether the event is about a call that runs a command of the shell: by the agent's tool for that,
// or by Monitor of Claude Code, which watches the output of a command, or else a web socket.
func (ev *event) runsShell() bool {
	switch ev.Tool {
	case "Bash", "bash":
		return true
	case "Monitor":
		var input map[string]json.RawMessage
		return json.Unmarshal(ev.Input, &input) != nil || input["command"] != nil
	}
	return false
}

// command returns the command in the event of a call of the agent's shell tool.
func (ev *event) command() (string, error) {
	var input map[string]json.RawMessage // a struct would also take "Command", which agents do not read
	err := json.Unmarshal(ev.Input, &input)
	command := ""
	if err == nil {
		err = json.Unmarshal(input["command"], &command)
	}
	if err != nil {
		return "", fmt.Errorf("reading the command of %s: %w", ev.Tool, err)
	}
	return command, nil
}

// readers are the names of the coding agents' tools that change no file. After a call of one, snapfs takes no
// checkpoint (snapshot) of the sandbox.
var readers = []string{
	"Read", "Glob", "Grep", "LS", "WebFetch", "WebSearch", "TodoWrite", "Task", "Agent", "AskUserQuestion", "ToolSearch", "Skill",
	"EnterWorktree", "ExitWorktree", "BashOutput", "TaskOutput", "KillShell", "TaskStop", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet",
	"read", "glob", "grep", "list", "webfetch", "todowrite", "todoread", "task",
}

// changer returns the last call of a tool in the agent's event that may have changed files; false if there is
// none.
func (ev *event) changer() (call, bool) {
	calls := ev.Calls
	if ev.Call != "" {
		calls = append(calls, call{Tool: ev.Tool, Input: ev.Input, ID: ev.Call})
	}
	for _, c := range slices.Backward(calls) {
		if !slices.Contains(readers, c.Tool) {
			return c, true
		}
	}
	return call{}, false
}

// A reply is the JSON text that a coding agent reads from the standard output of snapfs, which it ran as a
// hook.
type reply struct {
	Output output `json:"hookSpecificOutput"`
}

// A notice is a reply to an agent that only shows the person a text. The agent goes on as without it.
type notice struct {
	Text string `json:"systemMessage"`
}

func (n notice) encode() ([]byte, error) {
	data, err := json.Marshal(n)
	return append(data, '\n'), err
}

// An output is the content of a reply to an agent, such as a decision or a text for the model. Which fields
// are set depends on the event.
type output struct {
	Event    string                     `json:"hookEventName"`
	Decision string                     `json:"permissionDecision,omitempty"`
	Reason   string                     `json:"permissionDecisionReason,omitempty"`
	Input    map[string]json.RawMessage `json:"updatedInput,omitempty"`
	Context  string                     `json:"additionalContext,omitempty"`
	Request  *decision                  `json:"decision,omitempty"`
}

// A decision answers a coding agent's question to the person whether it may call a tool, in the person's place.
type decision struct {
	Behavior string `json:"behavior"` //nolint:misspell // the protocol's name
	Message  string `json:"message,omitempty"`
}

func (o output) encode(ev *event) ([]byte, error) {
	o.Event = ev.Name
	data, err := json.Marshal(reply{o})
	return append(data, '\n'), err
}
