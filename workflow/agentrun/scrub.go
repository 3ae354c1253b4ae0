package agentrun

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
)

// scrub returns a decoded value of an agent's settings without what may be a credential: members and variables
// whose names say so, headers of requests, and texts that a variable of a sandbox may not have either, such as a URL
// with a password. References such as {env:NAME} stay, since the agent resolves them in the sandbox.
func scrub(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, one := range v {
			if !isCredential(name, one) {
				kept[name] = scrub(one)
			}
		}
		return kept
	case []any:
		return scrubList(v)
	}
	return value
}

// scrubList returns a list without texts that hold a credential, and without the value that follows a flag such
// as --api-key in a command line.
func scrubList(list []any) []any {
	kept := []any{}
	secret := false
	for _, one := range list {
		text, is := one.(string)
		if is && (secret && !strings.HasPrefix(text, "-") || holdsCredential(text)) {
			secret = false
			continue
		}
		secret = is && strings.HasPrefix(text, "-") && !strings.Contains(text, "=") && saysSecret(text)
		kept = append(kept, scrub(one))
	}
	return kept
}

// isCredential reports whether the member called name of an agent's settings may hold a credential, or is a
// command of the host that prints one.
func isCredential(name string, value any) bool {
	if slices.Contains([]string{"headers", "http_headers", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh", "otelHeadersHelper"}, name) {
		return true
	}
	text, is := value.(string)
	return is && !isReference(text) && (saysSecret(name) || holdsCredential(text))
}

func isReference(text string) bool {
	return strings.HasPrefix(text, "{env:") || strings.HasPrefix(text, "{file:") || strings.HasPrefix(text, "${") && strings.HasSuffix(text, "}")
}

// saysSecret reports whether a name is one that programs give to credentials.
func saysSecret(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc([]string{"apikey", "token", "secret", "password", "passwd", "passphrase", "credential", "authorization", "privatekey", "accesskey", "bearer", "cookie"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// holdsCredential reports whether a text has a user in a URL or a setting such as password=x, or begins as the
// keys of a known service do.
func holdsCredential(text string) bool {
	if slices.ContainsFunc([]string{"sk-", "ghp_", "gho_", "github_pat_", "glpat-", "npm_", "xoxb-", "xoxp-", "hf_", "AIza"}, func(start string) bool {
		return strings.HasPrefix(text, start) && len(text) >= 20 && !strings.ContainsAny(text, " /")
	}) {
		return true
	}
	return len(hostfs.Environ([]string{"HOST=" + text}, nil)) == 0 // a variable that passes unless its value is a credential
}
