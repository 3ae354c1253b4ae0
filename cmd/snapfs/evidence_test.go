package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

//go:generate go test -count=1 -run TestTheDisputePrintsWhatItShows . -args -write-dispute

var writeDispute = flag.Bool("write-dispute", false, "write the output of the commands in docs/evidence.md")

// The dispute in docs/evidence.md prints exactly what it shows, and its statements fit their schemas.
func TestTheDisputePrintsWhatItShows(t *testing.T) { asRoot(t, dispute) }

func dispute(t *testing.T) {
	const page = "../../docs/evidence.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	b := newDesk(t)
	if err := os.Remove(filepath.Join(b.workspace, "real")); err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(b.workspace, "/home/ada/project")
	digest, undo := regexp.MustCompile(`[0-9a-f]{64}`), regexp.MustCompile(`undo [0-9a-z]{10}|undo: [0-9a-z]{10}`)
	age := regexp.MustCompile(`[0-9]+[smh] ago`)
	shown, steps := "", 0
	skipping := false
	for line := range strings.Lines(string(text)) {
		command, typed := strings.CutPrefix(line, "    $ ")
		if skipping = strings.HasPrefix(line, "    ") && (skipping || typed); !skipping || typed {
			shown += line
		}
		if !typed {
			continue
		}
		steps++
		out, _ := b.typed(strings.TrimSpace(command))
		out = undo.ReplaceAllStringFunc(digest.ReplaceAllString(plain.Replace(out), strings.Repeat("5e1ec7ed", 8)), func(found string) string {
			return found[:len(found)-10] + "6x2k0v9fqa"
		})
		for line := range strings.Lines(age.ReplaceAllString(out, "0s ago")) {
			shown += "    " + line
		}
	}
	if steps < 10 {
		t.Fatalf("%s has %d commands", page, steps)
	}
	if *writeDispute {
		if err := os.WriteFile(page, []byte(shown), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if shown != string(text) {
		t.Errorf("%s does not show what is printed (go generate ./cmd/snapfs); it is now:\n%s", page, shown)
	}
	file, err := os.ReadFile(filepath.Join(b.workspace, "job.evidence"))
	if err != nil {
		t.Fatal(err)
	}
	predicatesFit(t, file)
}

// predicatesFit checks the predicates of a bundle against their schemas.
func predicatesFit(t *testing.T, text []byte) {
	t.Helper()
	b, err := bundle.Decode(text)
	if err != nil || len(b.Statements) != 2 {
		t.Fatal(err)
	}
	for i, name := range []string{"start", "end"} {
		var e statement.Envelope
		var s statement.Statement
		var schema jsonschema.Schema
		written, err := os.ReadFile("../../docs/evidence/" + name + ".json")
		if err == nil {
			err = json.Unmarshal(written, &schema)
		}
		if err == nil {
			err = json.Unmarshal(b.Statements[i], &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := base64.StdEncoding.DecodeString(e.Payload)
		if err == nil {
			err = json.Unmarshal(body, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := schema.Resolve(nil)
		if err == nil {
			err = resolved.Validate(s.Predicate)
		}
		if err != nil {
			t.Errorf("the predicate of the %s: %v", name, err)
		}
	}
}
