package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
)

func TestSecretsOfFlagsAreRead(t *testing.T) {
	all, err := policy.ParseSecrets([]string{"TOKEN=file:a@b/key@api.example.com,*.example.org:8443", "KEY@a.example", "API_KEY=env:MY_KEY@b.example:1"}, "/here")
	if err != nil {
		t.Fatal(err)
	}
	want := []catalog.Secret{
		{Name: "API_KEY", Env: "MY_KEY", Hosts: []string{"b.example:1"}, As: "API_KEY"},
		{Name: "KEY", Env: "KEY", Hosts: []string{"a.example:443"}, As: "KEY"},
		{Name: "TOKEN", File: "/here/a@b/key", Hosts: []string{"api.example.com:443", "*.example.org:8443"}, As: "TOKEN"},
	}
	if fmt.Sprintf("%+v", all) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v", all)
	}
}

func TestMistakesInSecretsOfFlags(t *testing.T) {
	for text, want := range map[string]string{
		"KEY":                          "secret KEY: no hosts",
		"KEY=env:A":                    "secret KEY: no hosts",
		"KEY=sk-real":                  "secret KEY: no hosts",
		"KEY=sk-real@a.example":        "none of env:VARIABLE, file:PATH and keyring:PLACE",
		"KEY=command:sk-real@a":        "none of env:VARIABLE, file:PATH and keyring:PLACE",
		"KEY=env:@a.example":           "env: empty",
		"KEY=file:@a.example":          "file: empty",
		"KEY=env:A=B@a.example":        "invalid variable name",
		"=env:A@a.example":             `invalid name ""`,
		"a b=env:A@a.example":          "invalid name",
		"KEY=env:A@":                   "hosts: empty",
		"KEY=env:A@a.example,":         "hosts: empty",
		"KEY=env:A@10.0.0.1":           "is not one name",
		"KEY=env:A@GET a.example":      "is not one name",
		"KEY=env:A@https://a.example/": "hosts:",
	} {
		if _, err := policy.ParseSecrets([]string{text}, "/"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-real") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if _, err := policy.ParseSecrets([]string{"A@a.example", "A=env:B@b.example"}, "/"); err == nil || !strings.Contains(err.Error(), "named twice") {
		t.Error(err)
	}
}
