//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestSecretsThatAPersonKeepsEncrypted: a secret in a file of age, in a desktop's keyring and in the kernel's gets into
// requests, and is nowhere else.
func TestSecretsThatAPersonKeepsEncrypted(t *testing.T) {
	treetest.NeedProgram(t, "age", "age-keygen", "dbus-daemon", "gnome-keyring-daemon", "secret-tool")
	v := newVault(t, `"GET https://host.snapfs:PORT/v1/*"`, "", "")
	dir := filepath.Dir(v.workspace)
	identity, file := filepath.Join(dir, "identity"), filepath.Join(v.workspace, "key.age")
	treetest.Feed(t, "", "age-keygen", "-o", identity)
	treetest.Feed(t, v.key, "age", "-e", "-i", identity, "-o", file)
	desktopKeyring(t, filepath.Join(dir, "desktop"))
	for end := time.Now().Add(60 * time.Second); ; { // until the keyring is on the bus
		args := []string{"store", "--label=a test", "service", "api", "username", "me"}
		err := run.Run(t.Context(), run.Program{Name: "secret-tool", Args: args, Stdin: strings.NewReader(v.key)})
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	name := fmt.Sprint("snapfs:secrets:", os.Getpid())
	id, err := unix.AddKey("user", name, []byte(v.key), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) })

	ask := v.script(`curl -sSf -H "X-Api-Key: $API_KEY" https://host.snapfs:PORT/v1/echo; cat ` + identity + " " + file + ` || true`)
	sources := []string{`file = "` + file + "\"\nage-identity = \"" + identity + `"`, `keyring = "api/me"`, `keyring = "kernel:` + name + `"`}
	for n, source := range sources {
		v.secretFrom(t, source)
		got := v.snapfs("run", "-q", "--discard", "--profile", v.profile, "--", "sh", "-c", ask).want(0)
		got.has("SnapfsPlaceholder")
		if n == 0 && strings.Contains(got.all, "AGE-SECRET-KEY") || n == 0 && strings.Contains(got.all, "age-encryption.org") {
			t.Errorf("%s: a file of the secret is readable inside", source)
		}
		v.clean(source, []byte(got.all))
		if with, without := v.requests(); with != n+1 || without != 0 {
			t.Errorf("%s: the server got the key %d times, and %d requests without it", source, with, without)
		}
	}
	v.snapfs("run", "-q", "--discard", "--net", v.script("allow:GET https://host.snapfs:PORT/v1/*"), "--secret", "API_KEY=keyring:api/me@"+v.script("host.snapfs:PORT"),
		"--", "sh", "-c", ask).want(0)
	if with, _ := v.requests(); with != 4 {
		t.Errorf("with the flag, the server got the key %d times in all", with)
	}
	for source, want := range map[string]string{
		`keyring = "api/nobody"`:                                      `the keyring has no secret with service "api" and username "nobody"`,
		`keyring = "kernel:not-there"`:                                `has a user key "not-there"`,
		`keyring = "api"`:                                             `write "SERVICE/ACCOUNT" or "kernel:DESCRIPTION"`,
		`age-identity = "/etc/passwd"`:                                "name the encrypted file",
		sources[1] + "\nenv = \"HOME\"":                               "2 sources",
		`file = "` + file + "\"\nage-identity = \"" + v.profile + `"`: "has no identity of age",
	} {
		v.secretFrom(t, source)
		v.snapfs("run", "--discard", "--profile", v.profile, "--", "true").want(125).has(want)
	}
	v.cleanTree(v.state)
}

// secretFrom writes the profile anew, with this source of the secret.
func (v *vault) secretFrom(t *testing.T, source string) {
	t.Helper()
	text := v.script("[sandbox]\nnet = [\"GET https://host.snapfs:PORT/v1/*\"]\n[secrets.KEY]\nas = \"API_KEY\"\nhosts = [\"host.snapfs:PORT\"]\n") + source + "\n"
	if err := os.WriteFile(v.profile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// desktopKeyring starts a session bus and GNOME's keyring on it, with their files below dir, for this test and its
// processes. They end with the test. The bus starts no other program.
func desktopKeyring(t *testing.T, dir string) {
	t.Helper()
	bus := "unix:path=" + filepath.Join(dir, "bus")
	config := `<busconfig><type>session</type><listen>` + bus + `</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "bus.conf"), []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus)
	ready := started(t, "", "dbus-daemon", "--nofork", "--nopidfile", "--print-address", "--config-file="+filepath.Join(dir, "bus.conf"))
	if _, err := ready.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	started(t, "password", "gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
}

// started starts a program with this input, and returns its standard output. The program ends with the test.
func started(t *testing.T, input, name string, args ...string) *bufio.Reader {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return bufio.NewReader(out)
}
