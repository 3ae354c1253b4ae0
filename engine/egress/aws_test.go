package egress

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
)

func TestKeysOfAWSAreOfTheEnvironmentOrAProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials")
	text := "# a note\n[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = d/+=\n\n[ work ]\n;aws_session_token = no\nAWS_ACCESS_KEY_ID=AKIAWORK\naws_secret_access_key=w=x\naws_session_token = tok\n[half]\naws_access_key_id = AKIAHALF\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"AWS_SHARED_CREDENTIALS_FILE": path, "AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": ""} {
		t.Setenv(name, value)
	}
	for source, want := range map[string]string{
		"env": `{"id":"AKIAENV","key":"e"}`, "profile:default": `{"id":"AKIADEFAULT","key":"d/+="}`, "profile:work": `{"id":"AKIAWORK","key":"w=x","token":"tok"}`,
	} {
		f, err := openSecret(&catalog.Secret{Name: "x", AWS: source}, nil)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", source, got, err)
		}
		f.Close()
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	for source, want := range map[string]string{"env": "the host's environment has no", "profile:half": "the profile half of", "profile:none": "the profile none of"} {
		if _, err := openSecret(&catalog.Secret{Name: "x", AWS: source}, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "AKIA") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func TestVariablesOfAWSDoNotPass(t *testing.T) {
	o := &Proxy{brokered: &brokered{policy: catalog.Policy{Secrets: []catalog.Secret{{Name: "x", AWS: "env", As: "AWS_SECRET_ACCESS_KEY"}}}}}
	o.brokered.public.Placeholders = map[string]string{"x": "mark"}
	got := strings.Join(o.Variables([]string{"AWS_ACCESS_KEY_ID=real", "AWS_SECRET_ACCESS_KEY=real", "AWS_SESSION_TOKEN=real", "AWS_PROFILE=real", "AWS_REGION=r"}), " ")
	if strings.Contains(got, "real") || !strings.Contains(got, "AWS_REGION=r") || !strings.Contains(got, "AWS_SECRET_ACCESS_KEY=mark") || !strings.Contains(got, "AWS_ACCESS_KEY_ID=AKIA") {
		t.Error(got)
	}
}
