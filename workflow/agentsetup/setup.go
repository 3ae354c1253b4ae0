package agentsetup

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/confedit"
)

// Agents lists the coding agents that snapfs knows: it can write its hooks, commands that the agent runs at events
// such as a tool call, into their configuration, and run them inside a sandbox.
var Agents = []string{"claude", "codex", "opencode"}

// A Setup says which coding agent gets snapfs's hooks (commands that it runs at events), in which
// configuration file, and which command line they have.
type Setup struct {
	// Agent is one of Agents.
	Agent string
	// Project is the directory whose own configuration is changed, "" for that of the user.
	Project string
	// Program is the command line of snapfs up to "hook", and Flags are the flags of hook.
	Program, Flags []string
	// Preview adds the hook that runs a command in a throw-away clone when the agent asks whether it may.
	Preview bool
}

// An Edit is a change of one configuration file of a coding agent, to be shown to the user before Write makes
// it.
type Edit struct {
	Path string
	// Before is the content, nil if the file does not exist; After is the new content, nil to remove the file.
	Before, After []byte
}

// Empty reports whether the edit, a planned change of an agent's configuration file, changes nothing.
func (e Edit) Empty() bool {
	return bytes.Equal(e.Before, e.After) && (e.Before == nil) == (e.After == nil)
}

// Install returns the edit that adds snapfs's hooks, commands that a coding agent runs at events such as a
// tool call, to the agent's configuration. Errors: errs.ErrInvalid (an unknown agent; a file that is no
// configuration).
func (s Setup) Install() (Edit, error) {
	return s.edit(func(text []byte) ([]byte, error) {
		if s.Agent == "opencode" {
			return s.plugin()
		}
		return s.addHooks(text)
	})
}

// Uninstall returns the edit that removes snapfs's hooks, commands that a coding agent runs at events, from
// the agent's configuration. Errors: those of Install.
func (s Setup) Uninstall() (Edit, error) {
	return s.edit(func(text []byte) ([]byte, error) {
		if s.Agent == "opencode" {
			if !bytes.HasPrefix(text, []byte(pluginHead)) {
				return text, nil // nobody's, or another's
			}
			return nil, nil
		}
		return s.removeHooks(text)
	})
}

// Installed reports whether the coding agent's configuration has hooks of snapfs, commands that the agent
// runs at events.
func (s Setup) Installed() (bool, error) {
	e, err := s.Uninstall()
	return err == nil && !e.Empty(), err
}

// Path returns the path of the configuration file that the coding agent reads. Errors: errs.ErrInvalid (an
// unknown agent), errs.ErrNotFound (no home directory).
func (s Setup) Path() (string, error) {
	file := map[string][2]string{ // in a project, and in the directory of the user's configuration
		"claude":   {".claude/settings.json", "settings.json"},
		"codex":    {".codex/hooks.json", "hooks.json"},
		"opencode": {".opencode/plugin/snapfs.js", "plugin/snapfs.js"},
	}[s.Agent]
	if file[0] == "" {
		return "", errs.New("setting up", s.Agent, errs.ErrInvalid, "no such agent; there are "+strings.Join(Agents, ", "))
	}
	if s.Project != "" {
		return filepath.Join(s.Project, file[0]), nil
	}
	dir := map[string]string{"claude": os.Getenv("CLAUDE_CONFIG_DIR"), "codex": os.Getenv("CODEX_HOME")}[s.Agent]
	if filepath.IsAbs(dir) {
		return filepath.Join(dir, file[1]), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &errs.Error{Op: "setting up", Path: s.Agent, Kind: errs.ErrNotFound, Err: err, Hints: []string{"export HOME=DIRECTORY"}}
	}
	dir = map[string]string{"claude": ".claude", "codex": ".codex", "opencode": ".config/opencode"}[s.Agent]
	if config := os.Getenv("XDG_CONFIG_HOME"); s.Agent == "opencode" && filepath.IsAbs(config) {
		return filepath.Join(config, "opencode", file[1]), nil
	}
	return filepath.Join(home, dir, file[1]), nil
}

// edit returns the edit that change makes to the agent's configuration file. change gets the content; if
// there is no file, that of an empty configuration. If it returns an empty configuration, the edit removes
// the file.
func (s Setup) edit(change func(text []byte) ([]byte, error)) (Edit, error) {
	path, err := s.Path()
	if err != nil {
		return Edit{}, err
	}
	e := Edit{Path: path}
	e.Before, err = os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		e.Before, err = nil, nil
	} else if err == nil && e.Before == nil {
		e.Before = []byte{}
	}
	if err != nil {
		return e, errs.With("reading", path, err)
	}
	text := e.Before
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte(confedit.Created)
	}
	if e.After, err = change(text); err != nil {
		return e, &errs.Error{Op: "editing", Path: path, Kind: errs.ErrInvalid, Err: err}
	}
	if string(e.After) == confedit.Created || e.After == nil {
		e.After = nil
		if len(bytes.TrimSpace(e.Before)) == 0 {
			e.After = e.Before
		}
	}
	return e, nil
}

// A hook is an event, such as a call of a tool, at which a coding agent calls snapfs, with the tools for
// which it does so.
type hook struct {
	event, matcher string
	// seconds bounds the time of the call.
	seconds int
}

// Time limits of snapfs's hooks, in seconds, after which the agent ends them. The first start of a sandbox on
// a busy machine takes some; Codex allows no more than codexEnd for the end of a session.
const quick, slow, codexEnd = 30, 120, 3

// hooks returns the events, such as a tool call, at which the coding agent calls snapfs, in the order of the
// configuration file.
func (s Setup) hooks() []hook {
	if s.Agent == "codex" {
		return s.withPreview([]hook{
			{"SessionStart", "", slow},
			{"PreToolUse", "Bash|apply_patch", slow},
			{"PostToolUse", "Bash|apply_patch", quick},
			{"SessionEnd", "", codexEnd},
		})
	}
	tools := "Bash|Monitor|PowerShell|Read|Edit|MultiEdit|Write|NotebookEdit|Glob|Grep"
	if slices.ContainsFunc(s.Flags, func(f string) bool { return f == "--profile" || strings.HasPrefix(f, "--profile=") }) {
		tools = "" // its [tools] may refuse any
	}
	return s.withPreview([]hook{
		{"WorktreeCreate", "", slow},
		{"WorktreeRemove", "", quick},
		{"SessionStart", "", slow},
		{"SessionEnd", "", quick},
		{"SubagentStop", "", quick},
		{"PreToolUse", tools, slow},
		{"PostToolUse", "Agent|Task", quick},
		{"PostToolBatch", "", quick},
	})
}

// withPreview returns hooks with that of a preview, the effects of a command in a throw-away clone, if the
// person wants it.
func (s Setup) withPreview(hooks []hook) []hook {
	if s.Preview {
		hooks = append(hooks, hook{previewEvent, "Bash", quick})
	}
	return hooks
}

// previewEvent is the event that the coding agent is about to ask the person whether it may call a tool.
const previewEvent = "PermissionRequest"

// A group is an entry of a coding agent's configuration file: the commands (hooks) that the agent runs at an
// event.
type group struct {
	Matcher string    `json:"matcher,omitempty"`
	Hooks   []handler `json:"hooks"`
}

// A handler is a command (hook) that a coding agent's configuration file names for an event. If Args is set,
// the agent runs it without a shell.
type handler struct {
	Type    string   `json:"type"`
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	Timeout int      `json:"timeout,omitempty"`
}

// group returns the entry of a coding agent's configuration file by which the agent calls snapfs at the event
// of h, such as a tool call.
func (s Setup) group(h hook) group {
	words := slices.Concat(s.Program, []string{"hook", "--agent", s.Agent}, s.Flags, []string{h.event})
	c := handler{Type: "command", Timeout: h.seconds}
	if s.Agent == "codex" { // it has no list of arguments
		c.Command = shellWords(words)
	} else {
		c.Command, c.Args = words[0], words[1:]
	}
	return group{Matcher: h.matcher, Hooks: []handler{c}}
}

func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = errs.ShellQuoted(w)
	}
	return strings.Join(quoted, " ")
}

// splitWords returns the words of a command line that shellWords wrote into a coding agent's configuration.
func splitWords(command string) (words []string) {
	word, quoted, begun := "", false, false
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case c == '\'':
			quoted, begun = !quoted, true
		case c == '\\' && !quoted && i+1 < len(command):
			i++
			word, begun = word+command[i:i+1], true
		case c == ' ' && !quoted:
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(c), true
		}
	}
	if begun {
		words = append(words, word)
	}
	return words
}

func (s Setup) addHooks(text []byte) ([]byte, error) {
	if !s.Preview { // an earlier installation may have had it
		var err error
		if text, err = confedit.Remove(text, []string{"hooks", previewEvent}, isOurs); err != nil {
			return nil, err
		}
	}
	for _, h := range s.hooks() {
		want := s.group(h)
		path := []string{"hooks", h.event}
		present, err := confedit.Elements(text, path)
		if err != nil {
			return nil, err
		}
		ours := slices.DeleteFunc(present, func(e []byte) bool { return !isOurs(e) })
		if len(ours) == 1 && equal(ours[0], want) {
			continue
		}
		if text, err = confedit.Remove(text, path, isOurs); err != nil {
			return nil, err
		}
		if text, err = confedit.Append(text, path, want); err != nil {
			return nil, err
		}
	}
	return text, nil
}

func (s Setup) removeHooks(text []byte) ([]byte, error) {
	s.Preview = true
	for _, h := range slices.Backward(s.hooks()) {
		var err error
		if text, err = confedit.Remove(text, []string{"hooks", h.event}, isOurs); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// isOurs reports whether element, the JSON of an entry with the commands that a coding agent runs at an
// event, calls snapfs and nothing else, so that snapfs may change it.
func isOurs(element []byte) bool {
	var g group
	if json.Unmarshal(element, &g) != nil || len(g.Hooks) == 0 {
		return false
	}
	for _, h := range g.Hooks {
		words := append([]string{h.Command}, h.Args...)
		if len(h.Args) == 0 {
			words = splitWords(h.Command)
		}
		if len(words) == 0 || filepath.Base(words[0]) != "snapfs" || !slices.Contains(words, "hook") || !slices.Contains(words, "--agent") {
			return false
		}
	}
	return true
}

// equal reports whether element, the JSON of an entry with the commands that a coding agent runs at an event,
// means the same as want, whatever its format.
func equal(element []byte, want group) bool {
	var have, need any
	text, err := json.Marshal(want)
	if err != nil || json.Unmarshal(element, &have) != nil || json.Unmarshal(text, &need) != nil {
		return false
	}
	a, _ := json.Marshal(have) // with sorted names
	b, _ := json.Marshal(need)
	return bytes.Equal(a, b)
}
