package hostfs

import (
	"slices"
	"strings"
)

// SandboxVariable is the environment variable that contains the sandbox's name in every process of the
// sandbox.
const SandboxVariable = "SNAPFS_SANDBOX"

// NameSandbox returns env with the variable SNAPFS_SANDBOX set to the sandbox's name, unless env has it.
func NameSandbox(env []string, name string) []string {
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, SandboxVariable+"=") }) {
		return env
	}
	return append(slices.Clip(env), SandboxVariable+"="+name)
}

// Environ returns the variables of env that a command in a sandbox gets: those whose names are
// known to be harmless and whose values hold no credential, and those that pass names. An element
// of pass is NAME, or NAME=VALUE for a value of its own. The order of env stays.
func Environ(env, pass []string) []string {
	kept := make([]string, 0, len(env)+len(pass))
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		given := slices.ContainsFunc(pass, func(p string) bool { return strings.HasPrefix(p, name) && len(p) > len(name) && p[len(name)] == '=' })
		if !given && (slices.Contains(pass, name) || passes(name, value)) {
			kept = append(kept, kv)
		}
	}
	for i, p := range pass {
		name, _, set := strings.Cut(p, "=")
		later := slices.ContainsFunc(pass[i+1:], func(p string) bool { return strings.HasPrefix(p, name+"=") })
		if set && !later {
			kept = append(kept, p)
		}
	}
	return kept
}

// Withheld returns the names of the variables of env that a command in a sandbox does not get, in order. pass has the
// variables that the policy allows, as in [Environ].
func Withheld(env, pass []string) (names []string) {
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if !passes(name, value) && !slices.ContainsFunc(pass, func(p string) bool { one, _, _ := strings.Cut(p, "="); return one == name }) {
			names = append(names, name)
		}
	}
	return names
}

// passes reports whether a command in a sandbox gets this environment variable although the policy does not
// name it.
func passes(name, value string) bool {
	if name == "LS_COLORS" { //nolint:misspell // the name of a variable, whose value is long
		return true
	}
	return (harmless(name) || slices.ContainsFunc(families[:], func(f string) bool { return strings.HasPrefix(name, f) })) &&
		!SecretVariable(name, value)
}

// families are prefixes of the names of variables that a sandbox's commands get. Each belongs to one program
// or language, whose variables are settings and paths. A name among them that looks like a secret does not
// pass.
var families = [...]string{
	"LC_", "XDG_", "DEB_", "UCF_",
	"CARGO_", "RUST", "CGO_", "PYTHON", "PIP_", "UV_", "POETRY_", "PYENV_", "CONDA_", "PYTEST_", "TOX_", "NODE_", "NPM_", "npm_", "NVM_", "YARN_", "PNPM_", "COREPACK_",
	"DENO_", "BUN_", "VOLTA_", "FNM_", "JAVA_", "JDK_", "SDKMAN_", "GRADLE_", "KOTLIN_", "ANDROID_", "RBENV_", "RUBY", "PERL", "LUA_", "MIX_", "HEX_", "ERL_", "ELIXIR_",
	"CABAL_", "STACK_", "GHCUP_", "OPAM", "CAML_", "OCAML", "DOTNET_", "NUGET_", "NIX_", "JULIA_", "R_", "COMPOSER_", "PHP_", "SWIFT_", "ZIG_",
	"CMAKE_", "PKG_CONFIG", "CCACHE_", "SCCACHE_", "MESON_", "NINJA_", "BAZEL", "CONAN_", "VCPKG_", "LLVM_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "OPENBLAS_", "TF_CPP_",
	"HF_H", "TORCH_", "QT_", "GTK_", "FLASK_", "LESS", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_TRACE",
}

// harmless reports whether a sandbox's commands get a variable of this name: the user, the terminal, the
// language, the editor, and the paths and settings of tools.
func harmless(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "HOSTTYPE", "OSTYPE", "MACHTYPE", "MAIL", "TMPDIR", "TEMP", "TMP",
		"SUDO_USER", "SUDO_UID", "SUDO_GID", "PS1", "PS2", "PS4", "PROMPT", "CDPATH", "IFS", "ENV", "BASH_ENV", "PROMPT_COMMAND", "HISTSIZE", "HISTFILE", "HISTCONTROL",
		"TERM", "COLORTERM", "TERMINFO", "TERMINFO_DIRS", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "LINES", "COLUMNS", "LS_COLORS", "LSCOLORS", "GREP_COLOR", "GREP_COLORS", //nolint:misspell // names of variables
		"CLICOLOR", "CLICOLOR_FORCE", "NO_COLOR", "FORCE_COLOR", "COLORFGBG", "LANG", "LANGUAGE", "TZ", "TZDIR", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "MANPATH", "INFOPATH", //nolint:misspell // names of variables
		"BROWSER", "INSIDE_EMACS", "VIMRUNTIME",
		"CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILD_NUMBER", "DEBUG", "VERBOSE", "LOG_LEVEL", "SOURCE_DATE_EPOCH", "PORT", "HOST", "ENVIRONMENT", "APP_ENV", "RAILS_ENV",
		"RACK_ENV", "DJANGO_SETTINGS_MODULE", "DEBIAN_FRONTEND", "DEBEMAIL", "DEBFULLNAME", "EMAIL", "APT_LISTCHANGES_FRONTEND", "NEEDRESTART_MODE",
		"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"GOPATH", "GOROOT", "GOPROXY", "GOFLAGS", "GOCACHE", "GOMODCACHE", "GOTOOLCHAIN", "GOOS", "GOARCH", "GOARM", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOPRIVATE",
		"GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOINSECURE", "GOTMPDIR", "GOBIN", "GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "GOWORK", "GOENV",
		"GO111MODULE", "GOVCS", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "MPLBACKEND", "TRANSFORMERS_CACHE", "TOKENIZERS_PARALLELISM", "M2_HOME", "MAVEN_HOME", "CLASSPATH",
		"GEM_HOME", "GEM_PATH", "BUNDLE_PATH", "BUNDLE_GEMFILE", "BUNDLE_WITHOUT", "BUNDLE_JOBS", "BUNDLE_BIN", "IN_NIX_SHELL",
		"CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "RANLIB", "STRIP", "OBJCOPY", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LIBS", "MAKE", "MAKEFLAGS", "MFLAGS", "MAKELEVEL",
		"MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR", "ACLOCAL_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DESTDIR", "PREFIX",
		"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "MSAN_OPTIONS", "LSAN_OPTIONS", "MALLOC_ARENA_MAX", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGDATA",
		"GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_SSL_CAINFO", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_DIR", "GIT_WORK_TREE",
		"GIT_INDEX_FILE", "GIT_TERMINAL_PROMPT", "GIT_ALLOW_PROTOCOL", "GIT_CEILING_DIRECTORIES", "GIT_MERGE_AUTOEDIT", "GIT_PREFIX", "GIT_SSH", "GIT_SSH_COMMAND":
		return true
	}
	return false
}

// SecretVariable reports whether an environment variable looks like a secret or names a socket of a daemon of
// the host, so that a sandbox does not get it.
func SecretVariable(name, value string) bool {
	name = strings.ToUpper(name)
	switch name {
	case "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS",
		"XAUTHORITY", "DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET", "SWAYSOCK", "I3SOCK", "HYPRLAND_INSTANCE_SIGNATURE",
		"PULSE_SERVER", "PIPEWIRE_REMOTE", "GNOME_KEYRING_CONTROL", "LPASS_AGENTSOCK", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID",
		"TMUX", "STY", "KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "ALACRITTY_SOCKET", "NVIM", "NVIM_LISTEN_ADDRESS",
		"VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "VSCODE_GIT_IPC_AUTH_TOKEN",
		"DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST", "KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS",
		"KRB5CCNAME", "NETRC", "PGPASSFILE", "VAULT_ADDR", "BW_SESSION", "REDISCLI_AUTH", "SSHPASS", "JWT",
		"SUDO_ASKPASS", "SSH_ASKPASS", "GIT_ASKPASS", "SNAPFS_HOME", SandboxVariable:
		return true
	}
	for _, mark := range []string{
		"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "PRIVATE_KEY",
		"ACCESS_KEY", "AUTH_KEY", "SESSION_KEY", "_PAT", "COOKIE", "_PASS", "_PWD", "_KEY", "_AUTH", "_DSN", "_JWT", "CONNECTION_STRING",
	} {
		if !strings.Contains(name, mark) {
			continue
		}
		if strings.HasSuffix(name, mark) || strings.HasSuffix(name, mark+"S") || strings.Contains(name, mark+"_") || strings.Contains(name, mark+"S_") {
			return true
		}
	}
	return strings.HasPrefix(name, "AWS_") && name != "AWS_REGION" && name != "AWS_DEFAULT_REGION" ||
		strings.HasPrefix(name, "OP_SESSION_") || strings.HasSuffix(name, "PROXY") && strings.Contains(value, "@") || credentialIn(value)
}

// credentialIn reports whether the value of a variable holds a credential: a URL like scheme://user@host,
// except git@, which is no secret, a setting like password=x, or a token with a known prefix.
func credentialIn(value string) bool {
	if strings.Contains(value, "://") {
		for rest := value; ; {
			_, after, ok := strings.Cut(rest, "://")
			if !ok {
				break
			}
			authority := after
			if end := strings.IndexAny(after, "/?# \t\n"); end >= 0 {
				authority = after[:end]
			}
			if user, _, ok := strings.Cut(authority, "@"); ok && user != "git" {
				return true
			}
			rest = after
		}
	}
	lower := strings.ToLower(value)
	return slices.ContainsFunc(settings[:], func(s string) bool {
		for at := strings.Index(lower, s); at >= 0; {
			end := at + len(s)
			if s[len(s)-1] != '=' || len(lower) != len(value) || !isReference(value[end:]) {
				return true
			}
			next := strings.Index(lower[end:], s)
			if next < 0 {
				break
			}
			at = end + next
		}
		return false
	})
}

// isReference reports whether a text begins with a reference to another variable, $NAME or ${NAME} in capitals, which ends
// there or before a separator. A password may begin with a dollar sign, too.
func isReference(text string) bool {
	name, ok := strings.CutPrefix(text, "$")
	name, braced := strings.CutPrefix(name, "{")
	rest := strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")
	if !ok || len(rest) == len(name) || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	if braced {
		if rest, ok = strings.CutPrefix(rest, "}"); !ok {
			return false
		}
	}
	return rest == "" || strings.IndexByte(" \t\n;&,\"'", rest[0]) >= 0
}

// settings are the words, in lower case, by which snapfs takes the value of an environment variable for one with a
// credential, which a sandbox does not get.
var settings = [...]string{
	"password=", "passwd=", "pwd=", "token=", "secret=", "sig=", "?key=", "&key=", "apikey=", "api_key=", "api-key=", "access_key=", "login=", "authorization=", "authorization:", "bearer ",
	"access-tokens", "-setcookie ", "sshpass -p", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "sk-ant-", "sk-proj-", "nvapi-",
}
