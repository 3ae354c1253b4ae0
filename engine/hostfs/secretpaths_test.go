package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/hostfs/places"
)

// A directory of databases or logs stays writable, so that a package that needs it installs; what
// lies in it is hidden.
func TestDatabasesAndLogsAreHiddenEntryByEntry(t *testing.T) {
	root := realDir(t)
	in := func(path string) string { return filepath.Join(root, path) }
	for _, f := range []string{
		"/var/lib/postgresql/15/main/base", "/var/lib/redis/dump.rdb", "/var/lib/mysql/ibdata1", "/var/log/auth.log", "/var/log/nginx/access.log",
		"/var/log/apt/term.log", "/var/log/dpkg.log.1", "/var/lib/snapfs/format", "/home/a/.local/state/snapfs/format", "/home/a/.config/JetBrains/GoLand1/c.kdbx",
		"/home/a/.config/JetBrains/GoLand1/options.xml",
	} {
		mustWrite(t, in(f))
	}
	if err := os.MkdirAll(in("/var/lib/mongodb"), 0o755); err != nil {
		t.Fatal(err)
	}
	list := mustHide(t, hiding{real: findSecrets("/home/a", in), roots: map[string]string{"/": root}}, "/home/a", "/w")
	for _, want := range []string{
		"/var/lib/postgresql/15/main", "/var/lib/redis/dump.rdb", "/var/lib/mysql/ibdata1", "/var/log/auth.log", "/var/log/nginx/access.log", "/var/lib/snapfs",
		"/home/a/.local/state/snapfs", "/home/a/.config/JetBrains/GoLand1/c.kdbx",
	} {
		if !slices.Contains(list, want) {
			t.Errorf("%s is not hidden", want)
		}
	}
	for _, p := range list {
		for _, free := range []string{"/var/lib/postgresql", "/var/lib/postgresql/15", "/var/lib/redis", "/var/lib/mysql", "/var/lib/mongodb", "/var/log", "/var/log/nginx", "/var/log/dpkg.log.1"} {
			if p == free || strings.HasPrefix(p, "/var/log/apt") || filepath.Base(p) == "options.xml" {
				t.Errorf("%s is hidden", p)
			}
		}
	}
}

// Git finds its author in its settings, unless these hold a credential.
func TestSettingsAreHiddenOnlyWithACredential(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"[user]\n\tname = A\n\temail = a@example.org\n\tsigningkey = 0xA\n[url \"ssh://git@example.org/\"]\n\tinsteadOf = x\n": false,
		"[http]\n\textraHeader = Authorization: Basic x\n":                                                                     true,
		"[sendemail]\n\tsmtpPass = x\n":                                                                                        true,
		"[imap]\n\tpass=x\n":                                                                                                   true,
		"[http]\n\tcookieFile = ~/.c\n":                                                                                        true,
		"[alias]\n\tbypass-hooks = log -p\n":                                                                                   false,
		"[url \"https://a:b@example.org/\"]\n\tinsteadOf = x\n":                                                                true,
	} {
		home := realDir(t)
		path := filepath.Join(home, ".gitconfig")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(findSecrets(home, asItIs).people, path); got != want {
			t.Errorf("%q is hidden: %v, want %v", text, got, want)
		}
	}
}

// Any line of these may hold a credential, under a name of its own.
func TestSettingsOfAnyFormAreAlwaysHidden(t *testing.T) {
	t.Parallel()
	home := realDir(t)
	for _, name := range []string{".curlrc", ".wgetrc", ".env", ".envrc"} {
		path := filepath.Join(home, name)
		if err := os.WriteFile(path, []byte("x = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(findSecrets(home, asItIs).people, path) {
			t.Errorf("%s is not hidden", name)
		}
	}
}

// The table has the one form that the search and the page understand.
func TestEachPlaceIsInOneRow(t *testing.T) {
	seen := map[string]string{}
	for _, row := range places.Rows {
		if row.Program == "" || row.What == "" || len(row.Places) == 0 {
			t.Errorf("a row without content: %+v", row)
		}
		for _, p := range row.Places {
			if !strings.HasPrefix(p, "~/") && !strings.HasPrefix(p, "/") || strings.Contains(strings.ReplaceAll(p, "/*", ""), "*") {
				t.Errorf("%s: not a place", p)
			}
			if seen[p] != "" {
				t.Errorf("%s is in the rows %q and %q", p, seen[p], row.Program)
			}
			seen[p] = row.Program
		}
	}
}

func BenchmarkFindSecrets(b *testing.B) {
	for b.Loop() {
		findSecrets(userHome(), asItIs)
	}
}
