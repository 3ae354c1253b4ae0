//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsWithoutAProfile: the flag --secret takes a variable or a file, and the value is nowhere but in the
// proxy and the request.
func TestSecretsWithoutAProfile(t *testing.T) {
	v := newVault(t, "", "", "")
	file := filepath.Join(filepath.Dir(v.workspace), "key@file")
	if err := os.WriteFile(file, []byte(v.key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, rule := v.script("host.snapfs:PORT"), v.script("allow:GET https://host.snapfs:PORT/v1/*")
	echo := v.script(`curl -sSf -H "X-Api-Key: $API_KEY" https://host.snapfs:PORT/v1/echo; curl -sS -H "X-Api-Key: $API_KEY" https://host.snapfs:PORT/admin`)
	for n, source := range []string{"env:" + hostKey, "file:" + file, "file:../key@file"} {
		got := v.snapfs("run", "-q", "--discard", "--net", rule, "--secret", "API_KEY="+source+"@"+host, "--", "sh", "-c", echo).want(0)
		got.has("no rule allows GET /admin", "SnapfsPlaceholder")
		v.clean(source, []byte(got.all))
		if with, without := v.requests(); with != n+1 || without != 0 {
			t.Errorf("%s: the server got the key %d times, and %d requests without it", source, with, without)
		}
	}
	// In a named sandbox it stays, and show says where it comes from.
	v.snapfs("new", "--net", rule, "--env", hostKey, "--secret", "API_KEY=env:"+hostKey+"@"+host, "fix").want(0)
	v.snapfs("exec", "--env", hostKey, "fix", "--", "sh", "-c", echo+`; env`).want(0).has("API_KEY=sk-ant-api03-SnapfsPlaceholder")
	if with, _ := v.requests(); with != 4 {
		t.Errorf("the server got the key %d times", with)
	}
	v.snapfs("show", "fix").has("API_KEY from the variable " + hostKey + " for " + host + ", inside as API_KEY")
	v.snapfs("events").has("no rule allows GET /admin")
	for _, args := range [][]string{{"show", "fix"}, {"show", "--json", "fix"}, {"net", "fix"}, {"log", "fix"}, {"events"}, {"exec", "--env", hostKey, "fix", "--", "env"}} {
		v.clean(strings.Join(args, " "), []byte(v.snapfs(args...).all))
	}
	v.cleanTree(v.state)
}

// TestTheSecretFlagIsAsStrictAsAProfile: what a profile's secret needs, the flag needs.
func TestTheSecretFlagIsAsStrictAsAProfile(t *testing.T) {
	v := newVault(t, `"GET https://host.snapfs:PORT/v1/*"`, "", "")
	host := v.script("host.snapfs:PORT")
	v.snapfs("run", "--discard", "--secret", "KEY="+v.key+"@"+host, "--", "true").want(125).has("none of env:VARIABLE, file:PATH and keyring:PLACE")
	v.snapfs("run", "--discard", "--secret", "KEY=env:"+hostKey, "--", "true").want(125).has("secret KEY: no hosts")
	v.snapfs("run", "--discard", "--secret", "KEY=env:"+hostKey+"@"+host, "--", "true").want(125).has("secrets need a network of rules")
	v.snapfs("run", "--discard", "--net", "allow:"+host, "--secret", "KEY=env:NOT_SET_ANYWHERE@"+host, "--", "true").want(125).has("the variable NOT_SET_ANYWHERE is not set on the host")
	// The flag replaces a secret of the profile with the same variable inside, and says so.
	other := filepath.Join(filepath.Dir(v.workspace), "other")
	if err := os.WriteFile(other, []byte("another-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	v.snapfs("new", "--profile", v.profile, "--secret", "API_KEY=file:"+other+"@"+host, "fix").want(0)
	v.snapfs("show", "fix").has("ignored, since flags override it: secret KEY", "API_KEY from "+other)
	v.snapfs("exec", "fix", "--", "sh", "-c", v.script(`curl -sSf -H "X-Api-Key: $API_KEY" https://host.snapfs:PORT/v1/echo`)).want(0)
	if with, without := v.requests(); with != 0 || without != 1 || !strings.Contains(v.other[0], "another-key") {
		t.Errorf("%d requests with the key of the profile, %d without", with, without)
	}
}
