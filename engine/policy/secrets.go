package policy

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/httprule"
)

func secretsSection() Section {
	return Section{
		Header: "[secrets.NAME]",
		Text: "A secret that a sandbox uses without having it. Inside is a placeholder, new for each start; the network proxy replaces it in requests to the hosts " +
			"of the secret. Its value is only in the proxy's process. The network must allow these hosts: a secret opens nothing. A profile that was only found cannot name secrets. " +
			"A request that the proxy reads and that may not have the secret, by its host, method or path, gets the status 403 with the reason, and is an event (snapfs.network.refused).",
		Keys: []Key{
			{"env", "variable", "", "The source: a variable of the host, where the sandbox is started."},
			{"file", "path", "", "Or the source is a file, which the sandbox does not see. A relative path starts at the directory of the profile, or with ~/ at the home directory."},
			{"age-identity", "path", "", "The file is encrypted with age, and this is the file with the identity that decrypts it: as age-keygen writes it, or an SSH key without a passphrase. The sandbox sees neither file."},
			{"field", "text", "the whole file", "The value's place in a file of JSON: names joined by dots, as claudeAiOauth.accessToken."},
			{"command", "text, or list of texts", "", "Or the source is the output of a command, which runs on the real machine, as you, at each start of the sandbox: a line for the shell, or a program with its arguments."},
			{"keyring", "text", "", `Or the source is a keyring: "SERVICE/ACCOUNT" for the desktop's (Secret Service, as secret-tool store service SERVICE username ACCOUNT; a locked one asks you, for at most 20 s), or "kernel:DESCRIPTION" for the kernel's (keyctl add user DESCRIPTION … @u).`},
			{"aws", "text", "", `Or the source is a pair of AWS keys: "env" for AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the host, or "profile:NAME" for a profile in ~/.aws/credentials. ` +
				"Inside, the first two variables are placeholders with which clients sign; the proxy checks that signature (SigV4, in headers) and signs anew. Presigned URLs and signed chunks are refused, each an event. A request without a signature, or with one of other keys, passes as it is, if net allows it: it has nothing of these keys. Not with as, body or base-url."},
			{"hosts", "list of names", "", `The only servers that get the secret, over TLS: "api.example.com" with port 443, or "api.example.com:8443", or "*.example.com".`},
			{"methods", "list of methods", "every method", "The only methods of requests that get it."},
			{"paths", "list of paths", "every path", `The only paths of requests that get it, as "/v1/*".`},
			{"as", "variable", "the source's, or NAME", "The variable inside with the placeholder."},
			{"base-url", "variable, or VARIABLE=URL", "", "For programs that trust no added CA and read the URL of their server from a variable: inside, this variable is a URL of plain HTTP that only this sandbox reaches, " +
				"and the proxy speaks TLS to the server. The URL has the path of the provider for " + strings.Join(slices.Sorted(maps.Keys(knownBases())), ", ") + ", whose server is the provider's if hosts has it, and otherwise the only host; " +
				"in other cases write the server's URL, as \"API_URL=https://api.example.com/v2\". Its requests are refused unless their path is below that of the URL and methods and paths allow them, each an event."},
			{"body", "bool", "false", "Whether the placeholder is replaced in the bodies of requests, too, and not only in headers and the query."},
		},
	}
}

// maxSecrets is the greatest number of secrets in a profile. The proxy of a sandbox inherits one file
// descriptor for each.
const maxSecrets = 64

// secrets reads the sections [secrets.NAME] of a profile, decoded into table, and adds each secret, a
// credential that only the sandbox's proxy has, to r.sandbox. path is the path of the table in the file.
func (r *reader) secrets(path string, table map[string]any) {
	if len(table) > maxSecrets {
		r.wrong(path, fmt.Sprintf("more than %d secrets", maxSecrets), "remove some")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		at := path + "." + printable(name)
		one, ok := table[name].(map[string]any)
		switch {
		case !ok:
			r.wrong(at, "secrets: "+printable(name)+" is no section", "write [secrets.NAME]")
			continue
		case !isName(name):
			r.wrong(at, fmt.Sprintf("secrets: invalid name %q", name), "use letters, digits, dots, hyphens and underscores, and start with a letter, digit or underscore")
			continue
		}
		s := catalog.Secret{Name: name}
		r.section(secretsSection(), at, one, func(key, path string, v any) { r.secret(&s, key, path, v) })
		r.checkSecret(&s, at)
		r.sandbox.Secrets = append(r.sandbox.Secrets, s)
		r.said("secrets."+name, strings.Join(s.Hosts, " "), at)
	}
}

// secret stores one key of a section [secrets.NAME], called name and with the value v, in s. If v is not valid it
// records a mistake at path, the key's path in the file.
func (r *reader) secret(s *catalog.Secret, name, path string, v any) {
	switch name {
	case "env":
		s.Env = r.variable(name, path, v)
	case "as":
		s.As = r.variable(name, path, v)
	case "file":
		s.File = r.file(name, path, v)
	case "age-identity":
		s.Identity = r.file(name, path, v)
	case "keyring":
		s.Keyring = r.keyring(name, path, v)
	case "field":
		s.Field = r.text(name, path, v)
	case "command":
		if c := r.run(name, path, v); c != nil {
			s.Command = c.Args
		}
	case "aws":
		s.AWS = r.awsSource(name, path, v)
	case "hosts", "methods", "paths":
		r.secretRequests(s, name, path, v)
	case "base-url":
		s.Base = r.baseURL(name, path, v)
	case "body":
		on, ok := v.(bool)
		if !ok {
			r.wrong(path, "body: expected true or false, got "+kind(v), "write body = true")
		}
		s.Body = on
	}
}

// secretRequests stores one of the keys hosts, methods and paths of a section [secrets.NAME], which say into which
// requests the secret may be put; otherwise it does as [reader.secret].
func (r *reader) secretRequests(s *catalog.Secret, name, path string, v any) {
	switch name {
	case "hosts":
		r.texts(name, path, v, func(text, path string) { s.Hosts = append(s.Hosts, r.secretHost(text, path)) })
	case "methods":
		r.texts(name, path, v, func(text, path string) {
			if !httprule.IsMethod(text) {
				r.wrong(path, fmt.Sprintf("methods: invalid method %q", text), "write GET, POST or another one, in capitals")
			}
			s.Methods = append(s.Methods, text)
		})
	case "paths":
		r.texts(name, path, v, func(text, path string) {
			if clean, err := httprule.Clean(text); err != nil || clean != text {
				r.wrong(path, fmt.Sprintf("paths: invalid path %q", text), "write a path as in /v1/*")
			}
			s.Paths = append(s.Paths, text)
		})
	}
}

// file returns v, the value of the key name of a profile, if it is one path. Otherwise it records a mistake at path, the
// key's path in the file.
func (r *reader) file(name, path string, v any) string {
	if files := r.paths(name, path, []any{v}); len(files) == 1 {
		return filepath.Clean(files[0])
	}
	return ""
}

// awsSource returns v, the value of the key name of a profile, if it is a source of AWS keys as in
// [catalog.Secret.AWS]. Otherwise it records a mistake at path, the key's path in the file.
func (r *reader) awsSource(name, path string, v any) string {
	text := r.text(name, path, v)
	if profile, ok := strings.CutPrefix(text, catalog.AWSProfile); text != "" && text != catalog.AWSEnv && (!ok || profile == "") {
		r.wrong(path, fmt.Sprintf("%s: invalid source %q", name, text), `write "env" or "profile:NAME"`)
	}
	return text
}

// keyring returns v, the value of the key name of a profile, if it is a place in a keyring as in [catalog.Secret.Keyring].
// Otherwise it records a mistake at path, the key's path in the file.
func (r *reader) keyring(name, path string, v any) string {
	text := r.text(name, path, v)
	s := catalog.Secret{Keyring: text}
	if args := s.Reading(); text != "" && (args == nil || slices.Contains(args, "") || strings.Contains(text, "\x00")) {
		r.wrong(path, fmt.Sprintf("%s: invalid place %q", name, text), `write "SERVICE/ACCOUNT" or "kernel:DESCRIPTION"`)
	}
	return text
}

// variable returns v, the value of the key name of a profile, if it is the name of an environment variable. Otherwise
// it records a mistake at path, the key's path in the file.
func (r *reader) variable(name, path string, v any) string {
	text := r.text(name, path, v)
	if strings.ContainsAny(text, "= \n\x00") {
		r.wrong(path, fmt.Sprintf("%s: invalid variable name %q", name, text), "give the name without a value")
	}
	return text
}

// secretHost returns text, a host that may receive a secret, with the port 443 added if it has none. If text is not
// one host it records a mistake at path, the text's path in the file.
func (r *reader) secretHost(text, path string) string {
	rules, bad := network.Read(text)
	name, _, _ := strings.Cut(text, ":")
	switch {
	case bad != nil:
		r.wrong(path, "hosts: "+bad.Reason(), `write a name, as "api.example.com" or "api.example.com:8443"`)
	case rules.Len() != 1 || rules.HasMethods() || strings.ContainsAny(text, "+/") || !network.ValidName(network.Fold(strings.TrimPrefix(name, "*."))):
		r.wrong(path, fmt.Sprintf("hosts: %q is not one name", text), `write a name, as "api.example.com" or "api.example.com:8443"`)
	case !strings.Contains(text, ":"):
		return text + ":443"
	}
	return text
}

// checkSecret completes the secret s, read from the section at path, with defaults, and records the mistakes
// that involve more than one of its keys.
func (r *reader) checkSecret(s *catalog.Secret, path string) {
	r.checkSource(s, path)
	if s.AWS != "" && (s.As != "" || s.Body || s.Base != nil) {
		r.wrong(path, fmt.Sprintf("secret %s: aws with as, body or base-url", s.Name), "remove them: clients sign with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if s.AWS != "" {
		s.As = "AWS_SECRET_ACCESS_KEY"
	}
	if len(s.Hosts) == 0 {
		r.wrong(path, fmt.Sprintf("secret %s: no hosts", s.Name), `name the servers that get it: hosts = ["api.example.com"]`)
	}
	if s.Base != nil {
		r.checkBase(s, path+".base-url")
		if r.bad.Mistakes == nil && s.Methods == nil && network.BaseAuth(s.Base.Variable) != "" {
			s.Methods = []string{"GET", "HEAD"} // the proxy adds the token by itself; nothing is published
		}
	}
	if s.As == "" {
		s.As = s.Env
	}
	if s.As == "" {
		s.As = s.Name
	}
}

// checkSource records the mistakes that involve more than one of the keys for the source of the secret s, read from the
// section at path.
func (r *reader) checkSource(s *catalog.Secret, path string) {
	sources := 0
	for _, is := range []bool{s.Env != "", s.File != "", s.Command != nil, s.Keyring != "", s.AWS != ""} {
		if is {
			sources++
		}
	}
	if sources != 1 {
		r.wrong(path, fmt.Sprintf("secret %s: %d sources", s.Name, sources), `give it one: env = "VARIABLE", file = "PATH", command = "…", keyring = "SERVICE/ACCOUNT" or aws = "env"`)
	}
	if s.Field != "" && s.File == "" {
		r.wrong(path, fmt.Sprintf("secret %s: field without a file", s.Name), `name the file of JSON: file = "PATH"`)
	}
	if s.Identity != "" && (s.File == "" || s.Field != "") {
		r.wrong(path, fmt.Sprintf("secret %s: age-identity needs a file, without field", s.Name), `name the encrypted file: file = "PATH"`)
	}
}
