//go:build linux

package source_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network/source"
)

// value is the secret of these tests.
const value = "sk-real-secret\nof two lines"

// TestAge: what the program age encrypts for a key of its own or for an SSH key is read, in both forms of its files.
func TestAge(t *testing.T) {
	treetest.NeedProgram(t, "age", "age-keygen", "ssh-keygen")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	treetest.Feed(t, "", "age-keygen", "-o", at("own"))
	treetest.Feed(t, "", "age-keygen", "-o", at("other"))
	treetest.Feed(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at("ssh"))
	treetest.Feed(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "passphrase", "-f", at("locked"))
	treetest.Feed(t, value, "age", "-e", "-i", at("own"), "-o", at("binary"))
	treetest.Feed(t, value, "age", "-e", "-a", "-i", at("own"), "-o", at("text"))
	treetest.Feed(t, value, "age", "-e", "-R", at("ssh.pub"), "-R", at("locked.pub"), "-o", at("for-ssh"))
	treetest.Feed(t, "", "age", "-e", "-i", at("own"), "-o", at("empty"))
	treetest.Feed(t, strings.Repeat("x", 16<<10+1), "age", "-e", "-i", at("own"), "-o", at("long"))
	treetest.Feed(t, "", "age", "-e", "-i", at("own"), "-o", at("encrypted-identity"), at("own"))
	for file, identity := range map[string]string{"binary": "own", "text": "own", "for-ssh": "ssh"} {
		var got bytes.Buffer
		if err := source.Print(&got, []string{"age", at(file), at(identity)}); err != nil || got.String() != value {
			t.Errorf("%s by %s: %q, %v", file, identity, got.String(), err)
		}
	}
	for _, wrong := range [][3]string{
		{"binary", "other", "incorrect identity"},
		{"binary", "missing", "no such file"},
		{"missing", "own", "no such file"},
		{"for-ssh", "locked", "passphrase"},
		{"binary", "encrypted-identity", "encrypted itself"},
		{"own", "own", "decrypting"},
		{"empty", "own", "empty"},
		{"long", "own", "longer than 16 KiB"},
	} {
		refused(t, wrong[2], "age", at(wrong[0]), at(wrong[1]))
	}
}

// TestADamagedIdentityIsNotQuoted: an error may be seen by others, and a line with a mistake may be a key.
func TestADamagedIdentityIsNotQuoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(path, []byte("AGE-SECRET-KEY-1sk-real-but-misspelt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "has no identity of age", "age", path, path)
}

// TestKernel: a key of the user's keyring is read, and one that is missing is named.
func TestKernel(t *testing.T) {
	name := fmt.Sprint("snapfs:test:", os.Getpid())
	id, err := unix.AddKey("user", name, []byte(value), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	var got bytes.Buffer
	if err := source.Print(&got, []string{"kernel", name}); err != nil || got.String() != value {
		t.Errorf("%q, %v", got.String(), err)
	}
	refused(t, name+":missing", "kernel", name+":missing")
}

// TestNoKeyring: without a session bus the error says which variable names it.
func TestNoKeyring(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "nobody"))
	refused(t, "DBUS_SESSION_BUS_ADDRESS", "keyring", "service", "me")
	refused(t, "expected age FILE IDENTITY", "keyring", "service")
}

// refused fails the test unless reading the source args fails with an error that contains want and no secret.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	var got bytes.Buffer
	err := source.Print(&got, args)
	if err == nil || got.Len() > 0 || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-real") {
		t.Errorf("%q: %q, %v", args, got.String(), err)
	}
}
