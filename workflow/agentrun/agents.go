package agentrun

// A kit describes one coding agent: its program, its configuration, its keys, and how it starts in a sandbox.
type kit struct {
	// program is the name of the agent's program, and install a command that installs it, for a hint.
	program, install string
	// variable is the environment variable that names the directory of the agent's configuration. usual is that
	// directory in the home directory where the variable is not set. Of a directory for several programs, folder is
	// the agent's part.
	variable, usual, folder string
	// copied are the files and directories of the configuration that a sandbox gets, without credentials.
	copied []string
	// state is the file in the home directory with the agent's answers to first questions, or "". Only its
	// members answers reach a sandbox.
	state   string
	answers []string
	// keys are the agent's credentials. It uses the first that exists or, with several, each.
	keys    []key
	several bool
	// hidden are places in the home directory that hold the agent's real configuration. No profile shows them.
	hidden []string
	// variables are set in the sandbox, as NAME=VALUE.
	variables []string
	// programs are the variables that name directories of several programs in which the agent keeps its sessions. In
	// the sandbox each names a new directory.
	programs []string
	// launch is a script for the shell that runs in the sandbox before each start of the agent. It may write the
	// placeholder of a key into a file, since each start of the sandbox has another one.
	launch string
	// adapt changes the main settings of the agent, which have the name main, for a sandbox. address is the URL of
	// another server, or "". It may be nil.
	main  string
	adapt func(settings map[string]any, address string)
}

// A key is one credential that an agent can use: an environment variable, or a field of a file.
type key struct {
	// name is the name of the secret in the sandbox's policy.
	name string
	// variable has the key on the host, or is "". Inside, as has the placeholder.
	variable, as string
	// file is a path in the directory of the agent's configuration, or in the home directory if it begins with ~/.
	// field is the place of the key in that file, which is JSON. expires is the place of the time at which the key
	// ends, in milliseconds since 1970, or "".
	file, field, expires string
	// host is the server that gets the key. base is a variable of the host that names another one by a URL.
	host, base string
}

func kits() map[string]kit {
	return map[string]kit{"claude": claude(), "codex": codex(), "opencode": opencode()}
}

func claude() kit {
	const host, base = "api.anthropic.com", "ANTHROPIC_BASE_URL"
	return kit{
		program: "claude", install: "npm install -g @anthropic-ai/claude-code",
		variable: "CLAUDE_CONFIG_DIR", usual: ".claude",
		copied: []string{"settings.json", "CLAUDE.md", "agents", "commands", "skills", "output-styles", "rules", "keybindings.json"},
		state:  ".claude.json", answers: []string{"hasCompletedOnboarding", "lastOnboardingVersion", "theme", "editorMode"},
		keys: []key{
			{name: "anthropic", variable: "ANTHROPIC_API_KEY", as: "ANTHROPIC_API_KEY", host: host, base: base},
			{name: "anthropic", variable: "CLAUDE_CODE_OAUTH_TOKEN", as: "CLAUDE_CODE_OAUTH_TOKEN", host: host, base: base},
			{name: "anthropic", variable: "ANTHROPIC_AUTH_TOKEN", as: "ANTHROPIC_AUTH_TOKEN", host: host, base: base},
			{
				name: "anthropic", as: "CLAUDE_CODE_OAUTH_TOKEN", host: host, base: base,
				file: ".credentials.json", field: "claudeAiOauth.accessToken", expires: "claudeAiOauth.expiresAt",
			},
		},
		hidden:    []string{".claude", ".claude.json"},
		variables: []string{"IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
		// It asks once about a key in the environment, and records its last 20 characters.
		launch: `if [ "${#ANTHROPIC_API_KEY}" -gt 20 ]; then
	sed -i "s/@snapfs-key-end@/${ANTHROPIC_API_KEY#"${ANTHROPIC_API_KEY%????????????????????}"}/" "$CLAUDE_CONFIG_DIR/.claude.json"
fi`,
	}
}

func codex() kit {
	return kit{
		program: "codex", install: "npm install -g @openai/codex",
		variable: "CODEX_HOME", usual: ".codex",
		copied: []string{"config.toml", "AGENTS.md", "prompts", "skills", "rules", "hooks.json"},
		keys: []key{
			{name: "openai", variable: "OPENAI_API_KEY", as: "OPENAI_API_KEY", host: "api.openai.com", base: "OPENAI_BASE_URL"},
			{name: "openai", variable: "CODEX_API_KEY", as: "OPENAI_API_KEY", host: "api.openai.com", base: "OPENAI_BASE_URL"},
			{name: "openai", as: "OPENAI_API_KEY", host: "api.openai.com", base: "OPENAI_BASE_URL", file: "auth.json", field: "OPENAI_API_KEY"},
		},
		hidden: []string{".codex"},
		launch: `(umask 077 && printf '{"OPENAI_API_KEY":"%s"}\n' "$OPENAI_API_KEY" > "$CODEX_HOME/auth.json")`,
		main:   "config.toml", adapt: adaptCodex,
	}
}

// adaptCodex changes settings, Codex's main settings, for a sandbox. Codex's own sandbox, which cannot work
// inside another one, is switched off. So are its connections by WebSocket, which the network proxy cannot
// read. address is the URL of another server than OpenAI's, or "".
func adaptCodex(settings map[string]any, address string) {
	settings["sandbox_mode"] = "danger-full-access"
	if _, own := settings["model_provider"]; own {
		return
	}
	if address == "" {
		address = "https://api.openai.com/v1"
	}
	const provider = "openai-by-snapfs"
	settings["model_provider"] = provider
	all, _ := settings["model_providers"].(map[string]any)
	if all == nil {
		all = map[string]any{}
	}
	all[provider] = map[string]any{"name": "OpenAI", "base_url": address, "env_key": "OPENAI_API_KEY", "wire_api": "responses", "supports_websockets": false}
	settings["model_providers"] = all
}

func opencode() kit {
	const auth = "~/.local/share/opencode/auth.json"
	return kit{
		program: "opencode", install: "npm install -g opencode-ai",
		variable: "XDG_CONFIG_HOME", usual: ".config", folder: "opencode",
		copied: []string{
			"opencode.json", "opencode.jsonc", "AGENTS.md", "agent", "agents", "command", "commands", "plugin", "plugins", "skill", "skills", "themes", "tool", "tools", "mode", "modes",
		},
		keys: []key{
			{name: "anthropic", variable: "ANTHROPIC_API_KEY", as: "ANTHROPIC_API_KEY", host: "api.anthropic.com", base: "ANTHROPIC_BASE_URL"},
			{name: "openai", variable: "OPENAI_API_KEY", as: "OPENAI_API_KEY", host: "api.openai.com", base: "OPENAI_BASE_URL"},
			{name: "anthropic", as: "ANTHROPIC_API_KEY", host: "api.anthropic.com", base: "ANTHROPIC_BASE_URL", file: auth, field: "anthropic.key"},
			{name: "openai", as: "OPENAI_API_KEY", host: "api.openai.com", base: "OPENAI_BASE_URL", file: auth, field: "openai.key"},
		},
		several:   true,
		hidden:    []string{".config/opencode", ".local/share/opencode", ".local/state/opencode"},
		variables: []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"},
		programs:  []string{"XDG_DATA_HOME", "XDG_STATE_HOME"},
		// The settings and the data of other programs are where they are.
		launch: `others() {
	mkdir -p "$2"
	for dir in "$1"/*; do
		case "${dir##*/}" in opencode|'*') ;; *) [ -e "$2/${dir##*/}" ] || ln -s "$dir" "$2/" ;; esac
	done
}
others "$HOME/.config" "$XDG_CONFIG_HOME"
others "$HOME/.local/share" "$XDG_DATA_HOME"
others "$HOME/.local/state" "$XDG_STATE_HOME"`,
	}
}
