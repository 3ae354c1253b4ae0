package leak

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network/placeholder"
)

const labelledKey = "sk_live_9fKq27xPz41Aa"

// redactWorld returns a Redactor, and a sandbox called fix whose policy labels the files secret and private, in dir.
func redactWorld(t *testing.T) (r *Redactor, dir string) {
	t.Helper()
	dir = treetest.Dir(t)
	for name, text := range map[string]string{
		"secret": "KEY=" + labelledKey + "\nPHRASE=\"correct-horse, battery-staple and more\"\n", "private": "Ada Example,ada@example.org,+1 555 0100\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cat, err := catalog.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	rec := &catalog.Record{Name: "fix", ID: catalog.NewID(), Policy: catalog.Policy{
		Data: &catalog.Data{Secret: []string{filepath.Join(dir, "secret")}, Private: []string{filepath.Join(dir, "private")}},
	}}
	if err := cat.Create(rec); err != nil {
		t.Fatal(err)
	}
	return &Redactor{Catalog: cat}, dir
}

func (r *Redactor) want(t *testing.T, args, want []string) {
	t.Helper()
	before := slices.Clone(args)
	got, _, err := r.Redact("fix", args, nil)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%q: %v\n%s", args, err, d)
	}
	if !slices.Equal(args, before) {
		t.Errorf("the arguments of the command itself are %q now, and were %q", args, before)
	}
}

// TestArgumentsWithLabelledContentAreNotRecorded in whatever form and however they are divided, and others are as they were.
func TestArgumentsWithLabelledContentAreNotRecorded(t *testing.T) {
	r, _ := redactWorld(t)
	const secret, private = "[labelled secret]", "[labelled private]"
	r.want(t, []string{"ls", "-l", "sk_live_"}, []string{"ls", "-l", "sk_live_"})
	r.want(t, nil, nil)
	r.want(t, []string{"a", labelledKey, "b"}, []string{"a", secret, "b"})
	r.want(t, []string{"sh", "-c", "curl -d " + labelledKey + " example.com"}, []string{"sh", "-c", secret})
	r.want(t, []string{"a", base64.StdEncoding.EncodeToString([]byte("x " + labelledKey))}, []string{"a", secret})
	r.want(t, []string{"a", "b", "Ada Example,ada@example.org,+1 555 0100"}, []string{"a", "b", private})
	r.want(t, []string{"a", "correct-horse,", "battery-staple and", "more"}, []string{"a", secret, secret, secret})
	r.want(t, []string{labelledKey}, []string{secret})
	_, env, err := r.Redact("fix", nil, []string{"A=b", "TOKEN=" + labelledKey, "TERM=xterm"})
	if d := cmp.Diff([]string{"A=b", "TOKEN=" + secret, "TERM=xterm"}, env); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

// TestRedactionKnowsNewFilesAndSecrets reads the fingerprints again when they are others, and the prints of secrets once
// the proxy has stored them.
func TestRedactionKnowsNewFilesAndSecrets(t *testing.T) {
	r, dir := redactWorld(t)
	const other, token = "another_key_4711_xyz", "ghp_0123456789abcdefghij"
	args := []string{"a", other, token, labelledKey}
	r.want(t, args, []string{"a", other, token, "[labelled secret]"})
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("KEY="+other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := r.Catalog.Get("fix")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLabels(r.Catalog.Path("fix"), &rec.Policy); err != nil { // as a start does
		t.Fatal(err)
	}
	r.want(t, args, []string{"a", "[labelled secret]", token, "[labelled secret]"})
	if err := Store(r.Catalog.Path("fix"), placeholder.Prints("TOKEN", []byte(token))); err != nil {
		t.Fatal(err)
	}
	inside := placeholder.New([]byte(token))
	r.want(t, append(args, inside), []string{"a", "[labelled secret]", "[secret TOKEN]", "[labelled secret]", inside})
}

// TestValuesOfSecretVariablesAreNotRecorded, as they are or encoded, and those of other variables are.
func TestValuesOfSecretVariablesAreNotRecorded(t *testing.T) {
	r, _ := redactWorld(t)
	const token = "ghp_0123456789abcdefghij"
	p := catalog.Policy{Env: []string{"GH_TOKEN=" + token, "MODE=production", "PASSED_TOKEN"}}
	if !Redacts(&p) || Redacts(&catalog.Policy{Env: p.Env[1:]}) {
		t.Error("the policy does not say whether there is a secret")
	}
	if err := r.Catalog.Create(&catalog.Record{Name: "other", ID: catalog.NewID(), Policy: p}); err != nil {
		t.Fatal(err)
	}
	args := []string{"curl", "-H", "Authorization: " + token, base64.StdEncoding.EncodeToString([]byte("x:" + token)), "production"}
	want := []string{"curl", "-H", "[secret GH_TOKEN]", "[secret GH_TOKEN]", "production"}
	got, env, err := r.Redact("other", args, []string{"A=" + token})
	if d := cmp.Diff(want, got); d != "" || err != nil || env[0] != "A=[secret GH_TOKEN]" {
		t.Errorf("%v, %q\n%s", err, env, d)
	}
	if d := cmp.Diff(want, Redacted(&p, args)); d != "" {
		t.Error(d)
	}
}

// TestARedactorRemembersAFewSandboxes, and reads the labels of one again that was made anew under its name.
func TestARedactorRemembersAFewSandboxes(t *testing.T) {
	r, dir := redactWorld(t)
	for i := range 3 * maxSandboxes {
		name := "s" + strconv.Itoa(i)
		p := catalog.Policy{Env: []string{"KEY_TOKEN=value-of-" + name}}
		if err := r.Catalog.Create(&catalog.Record{Name: name, ID: catalog.NewID(), Policy: p}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := r.Redact(name, []string{"a", "value-of-" + name}, nil); err != nil || got[1] != "[secret KEY_TOKEN]" {
			t.Errorf("%q, %v", got, err)
		}
		r.want(t, []string{"a", labelledKey}, []string{"a", "[labelled secret]"})
	}
	if len(r.sandboxes) != maxSandboxes || r.sandboxes[maxSandboxes-1].labels.info == nil {
		t.Errorf("%d sandboxes are known, or the last one is read each time", len(r.sandboxes))
	}
	if _, _, err := r.Redact("absent", []string{"a", "b"}, nil); err == nil {
		t.Error("nothing is known of a sandbox that does not exist, and its arguments are recorded")
	}
	name := filepath.Base(r.Catalog.Path("s1"))
	if err := os.RemoveAll(r.Catalog.Path(name)); err != nil {
		t.Fatal(err)
	}
	data := &catalog.Data{Secret: []string{filepath.Join(dir, "secret")}}
	if err := r.Catalog.Create(&catalog.Record{Name: "s1", ID: catalog.NewID(), Policy: catalog.Policy{Data: data}}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := r.Redact("s1", []string{"a", labelledKey}, nil); err != nil || got[1] != "[labelled secret]" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLongArgumentsAreNotSearchedToTheirEnd, and so not recorded.
func TestLongArgumentsAreNotSearchedToTheirEnd(t *testing.T) {
	r, _ := redactWorld(t)
	long := strings.Repeat("a", maxRecorded)
	r.want(t, []string{"a", long, "b", labelledKey}, []string{"a", shownUnsearched, "b", "[labelled secret]"})
}

// TestWithoutReadableLabelsTheProgramAloneIsRecorded, because nobody knows what the arguments have.
func TestWithoutReadableLabelsTheProgramAloneIsRecorded(t *testing.T) {
	r, dir := redactWorld(t)
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Redact("fix", []string{"a", "b"}, nil); err == nil {
		t.Error("a file that cannot be recognised is no error")
	}
	rec, err := r.Catalog.Get("fix")
	if err != nil {
		t.Fatal(err)
	}
	if got := Redacted(&rec.Policy, []string{"a", "b"}); !slices.Equal(got, []string{"a", "…"}) {
		t.Errorf("%q", got)
	}
}

// BenchmarkRedact is what a command of a sandbox with labels costs more: one with few arguments, and one with many.
func BenchmarkRedact(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("KEY="+labelledKey+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	p := &catalog.Policy{Data: &catalog.Data{Secret: []string{filepath.Join(dir, "secret")}}}
	set, err := readLabels(nil, p)
	if err != nil {
		b.Fatal(err)
	}
	s := searcher{labels: set}
	for name, args := range map[string][]string{
		"few": {"sh", "-c", "make test && ./run --all"}, "many": slices.Repeat([]string{"some/directory/file_name.go"}, 5000),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.redact(args, 1, whole)
			}
		})
	}
}
