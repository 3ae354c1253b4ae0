package egress

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
)

func TestASecretIsOneFieldOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(path, []byte(`{"one": {"key": "sk-inner", "n": 1}, "other": "sk-other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openSecret(&catalog.Secret{Name: "x", File: path, Field: "one.key"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != "sk-inner" {
		t.Errorf("%q, %v", got, err)
	}
	for field, want := range map[string]string{"one": "no text at one", "one.n": "no text", "two": "no text", "other.key": "no text", "one.key.x": "no text"} {
		if _, err := openSecret(&catalog.Secret{Name: "x", File: path, Field: field}, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := os.WriteFile(path, []byte("sk-plain"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FieldOf(path, "one"); err == nil || strings.Contains(err.Error(), "sk-") || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("%v", err)
	}
}
