package agentrun

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
)

// A scrubber removes what may be a credential from the decoded values of one file of an agent's settings. left
// names the command lines that it removed as a whole, such as mcp_servers.x.args.
type scrubber struct{ left []string }

// scrub returns a decoded value of an agent's settings without what may be a credential: members and
// variables whose names say so, headers of requests, and texts that a variable of a sandbox may not have
// either, such as a URL with a password. References such as {env:NAME} stay, since the agent resolves them in
// the sandbox. where is the place of the value in its file, such as mcp_servers.x. scrub reports false for a
// value that would be wrong without its credential.
func (c *scrubber) scrub(where string, value any) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, one := range v {
			place := strings.TrimPrefix(where+"."+name, ".")
			switch {
			case isCommandLine(name, one):
				c.left = append(c.left, place)
				if name == "command" { // an agent refuses a server or a hook without a command
					return nil, false
				}
			case isCredential(name, one):
				if _, is := one.(map[string]any); is { // perhaps a whole server with such a name
					c.left = append(c.left, place)
				}
			default:
				if clean, ok := c.scrub(place, one); ok {
					kept[name] = clean
				}
			}
		}
		return kept, true
	case []any:
		kept := []any{}
		secret := secretElements(v)
		for i, one := range v {
			if secret[i] {
				continue
			}
			if clean, ok := c.scrub(where, one); ok {
				kept = append(kept, clean)
			}
		}
		return kept, true
	}
	return value, true
}

// isCommandLine reports whether the member called name of an agent's settings, with this value, is a command,
// or the arguments of one, that may hold a credential. Such a command does something else without one of its
// arguments, so the member is left out of the sandbox's copy as a whole.
func isCommandLine(name string, value any) bool {
	if name != "args" && name != "command" {
		return false
	}
	switch v := value.(type) {
	case string:
		return holdsCredential(v) || slices.Contains(secretElements(fieldsOf(v)), true)
	case []any:
		return slices.Contains(secretElements(v), true)
	}
	return false
}

// fieldsOf returns the words of a command line in an agent's settings, without quotes around them, to search
// them for credentials.
func fieldsOf(command string) (words []any) {
	for _, word := range strings.Fields(command) {
		words = append(words, strings.Trim(word, `'"`))
	}
	return words
}

// secretElements reports for each element of list, in an agent's settings, whether it may hold a credential:
// by its text, or as the value that follows a flag such as --api-key or --header. Such elements are left out
// of the sandbox's copy.
func secretElements(list []any) []bool {
	secret := make([]bool, len(list))
	after := false // a flag whose value may be a credential
	for i, one := range list {
		text, is := one.(string)
		if is && isReference(text) {
			after = false
			continue
		}
		name, _, header := strings.Cut(text, ":")
		secret[i] = after || is && (holdsCredential(text) || header && !strings.ContainsAny(name, " /") && saysSecret(name))
		after = is && !secret[i] && isSecretFlag(text)
	}
	return secret
}

// isSecretFlag reports whether a word of a command line in an agent's settings is a flag, such as --api-key,
// whose value, the next word, may be a credential.
func isSecretFlag(word string) bool {
	if !strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
		return false
	}
	return slices.Contains([]string{"-H", "-k", "-u", "--header", "--user", "--proxy-user"}, word) || saysSecret(strings.TrimLeft(word, "-"))
}

// isCredential reports whether the member called name of an agent's settings may hold a credential, or is a
// command of the host that prints one.
func isCredential(name string, value any) bool {
	if slices.Contains([]string{"headers", "http_headers", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh", "otelHeadersHelper"}, name) {
		return true
	}
	switch v := value.(type) {
	case string:
		if isReference(v) || namesVariable(name) && isVariable(v) {
			return false
		}
		return saysSecret(name) || holdsCredential(name) || holdsCredential(v)
	case bool, nil:
		return false
	case float64, int64, json.Number:
		return saysSecret(name) && !saysCount(name)
	}
	return saysSecret(name) || holdsCredential(name)
}

// isReference reports whether a text in an agent's settings is nothing but a reference to a variable or a
// file, such as ${NAME}, so that it holds no credential itself.
func isReference(text string) bool {
	if inner, ok := strings.CutSuffix(text, "}"); ok {
		for _, start := range []string{"{env:", "{file:", "${"} {
			if rest, ok := strings.CutPrefix(inner, start); ok {
				return rest != "" && !strings.ContainsAny(rest, "{}") && (start != "${" || rest == nameAtEnd(rest) && !strings.ContainsAny(rest, ".-"))
			}
		}
	}
	rest, ok := strings.CutPrefix(text, "$")
	return ok && isVariable(rest) // a password may begin with a dollar sign
}

// nameAtEnd returns the name of a variable, a flag or a parameter with which a text ends, or "". Before an
// equals sign in an agent's settings it is the name of the value that follows.
func nameAtEnd(text string) string {
	other := strings.LastIndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	})
	return text[other+1:]
}

// isVariable reports whether a text in an agent's settings may be the name of an environment variable, and so
// no credential.
func isVariable(text string) bool {
	return text != "" && text == strings.ToUpper(text) && text == nameAtEnd(text) && !strings.ContainsAny(text, ".-")
}

// namesVariable reports whether the member called name of an agent's settings, such as env_key, has the name
// of a variable as its value, and so no credential.
func namesVariable(name string) bool { return name == "env_key" || strings.HasSuffix(name, "env_var") }

// saysCount reports whether the name of a member of an agent's settings is that of a number of tokens, such
// as max_tokens, although "token" otherwise means a credential.
func saysCount(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "token") && slices.ContainsFunc([]string{"max", "min", "limit", "budget", "count"}, func(word string) bool { return strings.Contains(name, word) })
}

// saysSecret reports whether the name of a member of an agent's settings is one that programs give to
// credentials, such as apiKey, or that of a variable which no sandbox gets because of its name.
func saysSecret(name string) bool {
	var words strings.Builder // of sessionKey, session_Key
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' && name[i-1] >= 'a' && name[i-1] <= 'z' {
			words.WriteByte('_')
		}
		words.WriteRune(r)
	}
	snake := strings.NewReplacer("-", "_", ".", "_", "=", "_").Replace(words.String())
	if len(hostfs.Environ([]string{"XDG_" + snake + "=x"}, nil)) == 0 { // a family of which all others pass
		return true
	}
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return slices.ContainsFunc([]string{"apikey", "token", "secret", "password", "passwd", "passphrase", "credential", "authorization", "privatekey", "accesskey", "bearer", "cookie"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// holdsCredential reports whether a text in an agent's settings may hold a credential: a user in a URL, the
// value of a header for a sign-in, a setting or a parameter of a URL whose name says secret, such as
// api-key=x, or a word that begins like the keys of a known service.
func holdsCredential(text string) bool {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n/:=,;&?#'\"()<>", r) }) {
		if len(word) >= 20 && slices.ContainsFunc([]string{"sk-", "ghp_", "gho_", "github_pat_", "glpat-", "npm_", "xoxb-", "xoxp-", "hf_", "AIza", "AKIA", "eyJ"}, func(start string) bool {
			return strings.HasPrefix(word, start)
		}) {
			return true
		}
	}
	return signsIn(text) || setsSecret(text) ||
		len(hostfs.Environ([]string{"HOST=" + text}, nil)) == 0 // a variable that passes unless its value is a credential
}

// signsIn reports whether a text in an agent's settings has the HTTP header Authorization or the value of
// one, such as Bearer x, and so a credential.
func signsIn(text string) bool {
	text = strings.ToLower(text)
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n:=\"'", r) })
	for i, word := range words {
		if (word == "bearer" || word == "basic") && i+1 < len(words) {
			return true
		}
	}
	return strings.Contains(text, "authorization:")
}

// setsSecret reports whether a text in an agent's settings gives a value to a flag, a variable or a parameter
// of a URL whose name says that the value is secret, such as --api-key=x.
func setsSecret(text string) bool {
	for at, r := range text {
		if r != '=' {
			continue
		}
		name, value := nameAtEnd(text[:at]), text[at+1:]
		if end := strings.IndexAny(value, " \t\r\n&#'\""); end >= 0 {
			value = value[:end]
		}
		count := saysCount(name) && strings.Trim(value, "0123456789") == ""
		if value != "" && saysSecret(name) && !isReference(value) && !count {
			return true
		}
	}
	return false
}
