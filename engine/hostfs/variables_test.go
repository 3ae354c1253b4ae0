package hostfs

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyKnownVariablesPass(t *testing.T) {
	env := []string{
		"PATH=/bin", "GITHUB_TOKEN=x", "AWS_SECRET_ACCESS_KEY=x", "AWS_REGION=eu", "SSH_AUTH_SOCK=/x", "HOME=/root", "TOKENIZERS_PARALLELISM=1", "GOPROXY=off",
		"OLDPWD=/x", "LC_ALL=C", "CARGO_D=--token=$T_1 --api-key=${K}", "npm_config_registry=https://npm.example.org/", "KEPT=1", "FIRST=old",
		// What looks harmless and is not.
		"JDBC_URL=jdbc:x", "SLACK_WEBHOOK_URL=https://x", "OTEL_EXPORTER_OTLP_HEADERS=x", "GIT_CONFIG_VALUE_0=x", "KEY=x", "PASS=x", "SEED=x", "BUNDLE_GEMS__X=a:b",
		"SMTPPASS=x", "MNEMONIC=x", "TF_VAR_db_pw=x", "MAVEN_OPTS=-Dx", "SNAPFS_HOME=/x", "DISPLAY=:0",
		// Harmless names with a credential.
		"PIP_INDEX_URL=https://token@example.org/", "UV_INDEX_URL=https://a:b@example.org/", "CARGO_REGISTRIES_X_TOKEN=x", "JAVA_TOOL_OPTIONS=-Dpassword=x",
		"CARGO_HTTP_PROXY=a:b@example.org:80", "PIP_PROXY=a@example.org", "NPM_CONFIG__AUTH=x", "NODE_AUTH_TOKEN=x",
		"NIX_CONFIG=access-tokens = github.com=x", "VCPKG_BINARY_SOURCES=http,https://example.org,read,Authorization: Bearer x", "ERL_FLAGS=-setcookie x", "CARGO_NET_X=ghp_x",
		"GIT_SSH_COMMAND=sshpass -p x ssh", "DOTNET_X=Pwd=x;", "CARGO_A=password=$tr0ng", "CARGO_B=--token=$T --token=x", "CARGO_C=token=${T}x", "ZIG_X=https://example.org/?key=x",
	}
	got := strings.Join(Environ(env, []string{"KEPT", "FIRST=new", "LAST=a=b"}), " ")
	want := "PATH=/bin AWS_REGION=eu HOME=/root TOKENIZERS_PARALLELISM=1 GOPROXY=off OLDPWD=/x LC_ALL=C CARGO_D=--token=$T_1 --api-key=${K} npm_config_registry=https://npm.example.org/ KEPT=1 FIRST=new LAST=a=b"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if left := Withheld(env, []string{"KEPT", "FIRST=new"}); slices.Contains(left, "KEPT") || slices.Contains(left, "FIRST") || !slices.Contains(left, "PIP_INDEX_URL") || !slices.Contains(left, "SEED") {
		t.Errorf("withheld: %q", left)
	}
}

func BenchmarkEnviron(b *testing.B) {
	env := []string{"PATH=/bin", "HOME=/root", "LONG=" + strings.Repeat("*.x=01;31:", 100)}
	for _, name := range []string{"DESKTOP_SESSION", "GITHUB_TOKEN", "LANG", "LC_ALL", "PWD", "SHLVL", "MY_OWN", "GOPATH"} {
		env = append(env, name+"=some/value", name+"_2=https://example.org/a")
	}
	for b.Loop() {
		Environ(env, nil)
	}
}
