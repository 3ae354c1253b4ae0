package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/timer"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/copier"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/job"
	"github.com/snapfs/snapfs/workflow/learn"
	"github.com/snapfs/snapfs/workflow/pipeline"
	"github.com/snapfs/snapfs/workflow/readiness"
	"github.com/snapfs/snapfs/workflow/timeline"
	"github.com/snapfs/snapfs/workflow/transfer"
)

//go:generate go test -count=1 -run TestSchemasMatchTheirTypes . -args -write-schemas

var writeSchemas = flag.Bool("write-schemas", false, "write docs/schemas")

// An errorSchema is an errorDocument with the one kind of details that there is.
type errorSchema struct {
	Error struct {
		Message string             `json:"message"`
		Status  int                `json:"status"`
		Kind    string             `json:"kind,omitempty"`
		Hints   []string           `json:"hints,omitempty"`
		Details *reconcile.Refusal `json:"details,omitempty"`
	} `json:"error"`
}

// documents are the results of the commands with --json, by the name of the schema: the command's, or
// error for what is printed on standard error.
func documents() map[string]reflect.Type {
	return map[string]reflect.Type{
		"agent-install":        reflect.TypeFor[agentEdit](),
		"agent-run":            reflect.TypeFor[agentRunDocument](),
		"agent-status":         reflect.TypeFor[agentReport](),
		"agent-uninstall":      reflect.TypeFor[agentEdit](),
		"apply":                reflect.TypeFor[reconcile.Promoted](),
		"bisect":               reflect.TypeFor[bisectDocument](),
		"budget-raise":         reflect.TypeFor[budgetDocument](),
		"budget-show":          reflect.TypeFor[budgetDocument](),
		"cp":                   reflect.TypeFor[copier.Copied](),
		"diff":                 reflect.TypeFor[changesDocument](),
		"diff-html":            reflect.TypeFor[pageDocument](),
		"doctor":               reflect.TypeFor[examination](),
		"doctor-prove":         reflect.TypeFor[prove.Report](),
		"doctor-prove-record":  reflect.TypeFor[readiness.Result](),
		"doctor-sandbox":       reflect.TypeFor[checkDocument](),
		"drift":                reflect.TypeFor[compare.DriftReport](),
		"error":                reflect.TypeFor[errorSchema](),
		"events":               reflect.TypeFor[events.Event](),
		"evidence-cosign":      reflect.TypeFor[evidence.Cosigned](),
		"evidence-countersign": reflect.TypeFor[countersignedDocument](),
		"evidence-export":      reflect.TypeFor[exported](),
		"evidence-key":         reflect.TypeFor[keyDocument](),
		"evidence-prune":       reflect.TypeFor[evidence.Pruned](),
		"evidence-reveal":      reflect.TypeFor[bundle.Revealed](),
		"evidence-reveal-text": reflect.TypeFor[[]audit.Match](),
		"evidence-root":        reflect.TypeFor[rootDocument](),
		"evidence-verify":      reflect.TypeFor[bundle.Report](),
		"exec-detach":          reflect.TypeFor[startedDocument](),
		"fetch":                reflect.TypeFor[reconcile.Promoted](),
		"fork":                 reflect.TypeFor[catalog.Record](),
		"gc":                   reflect.TypeFor[engine.Collected](),
		"job":                  reflect.TypeFor[job.Job](),
		"job-ls":               reflect.TypeFor[[]job.Job](),
		"job-trigger":          reflect.TypeFor[triggerDocument](),
		"job-triggers":         reflect.TypeFor[[]job.Trigger](),
		"job-untrigger":        reflect.TypeFor[int](),
		"keep":                 reflect.TypeFor[sandboxDocument](),
		"last":                 reflect.TypeFor[sandboxDocument](),
		"open":                 reflect.TypeFor[openDocument](),
		"learn":                reflect.TypeFor[learn.Learned](),
		"limits":               reflect.TypeFor[limitsDocument](),
		"log":                  reflect.TypeFor[[]pipeline.HistoryEntry](),
		"logs":                 reflect.TypeFor[detachedDocument](),
		"logs-list":            reflect.TypeFor[[]supervise.Detached](),
		"ls":                   reflect.TypeFor[[]engine.Info](),
		"ls-quiet":             reflect.TypeFor[[]string](),
		"net":                  reflect.TypeFor[netDocument](),
		"new":                  reflect.TypeFor[catalog.Record](),
		"plan":                 reflect.TypeFor[planDocument](),
		"pool-adopt":           reflect.TypeFor[carried](),
		"pool-create":          reflect.TypeFor[poolDocument](),
		"pool-drop-original":   reflect.TypeFor[droppedDocument](),
		"pool-grow":            reflect.TypeFor[poolDocument](),
		"pool-import":          reflect.TypeFor[carried](),
		"pool-rm":              reflect.TypeFor[nameDocument](),
		"pool-status":          reflect.TypeFor[poolDocument](),
		"pool-unadopt":         reflect.TypeFor[carried](),
		"port":                 reflect.TypeFor[portsDocument](),
		"profile-check":        reflect.TypeFor[profileVerdict](),
		"profile-diff":         reflect.TypeFor[[]learn.Difference](),
		"profile-explain":      reflect.TypeFor[profileExplained](),
		"profile-list":         reflect.TypeFor[[]policy.NamedProfile](),
		"profile-show":         reflect.TypeFor[profileText](),
		"profile-trust":        reflect.TypeFor[trustDocument](),
		"promote":              reflect.TypeFor[reconcile.Promoted](),
		"promote-stages":       reflect.TypeFor[stages.Pipeline](),
		"race":                 reflect.TypeFor[raceDocument](),
		"receive":              reflect.TypeFor[transfer.Received](),
		"receive-forget":       reflect.TypeFor[forgottenStreams](),
		"receive-have":         reflect.TypeFor[[]string](),
		"redo":                 reflect.TypeFor[reconcile.Undone](),
		"redo-list":            reflect.TypeFor[[]promotionRow](),
		"ready":                reflect.TypeFor[readiness.Answer](),
		"report":               reflect.TypeFor[reportDocument](),
		"refresh":              reflect.TypeFor[reconcile.Refreshed](),
		"rename":               reflect.TypeFor[nameDocument](),
		"rm":                   reflect.TypeFor[[]string](),
		"rollback":             reflect.TypeFor[rolledBack](),
		"run":                  reflect.TypeFor[runDocument](),
		"send":                 reflect.TypeFor[transfer.Sent](),
		"show":                 reflect.TypeFor[engine.Info](),
		"snapshot":             reflect.TypeFor[catalog.NamedSnapshot](),
		"stages":               reflect.TypeFor[policy.Profile](),
		"stats":                reflect.TypeFor[[]statsRow](),
		"status":               reflect.TypeFor[workspaceStatus](),
		"stop":                 reflect.TypeFor[nameDocument](),
		"timeline":             reflect.TypeFor[timeline.Timeline](),
		"timer-install":        reflect.TypeFor[timer.Status](),
		"timer-remove":         reflect.TypeFor[timerRemoved](),
		"timer-status":         reflect.TypeFor[timer.Status](),
		"token-ls":             reflect.TypeFor[[]token.Token](),
		"token-new":            reflect.TypeFor[newTokenDocument](),
		"token-rm":             reflect.TypeFor[[]string](),
		"undo":                 reflect.TypeFor[reconcile.Undone](),
		"undo-forget":          reflect.TypeFor[forgotten](),
		"undo-list":            reflect.TypeFor[[]promotionRow](),
		"version":              reflect.TypeFor[versionDocument](),
	}
}

// textForms returns the schemas of the types that are printed as text, by their MarshalText, whatever fields they have.
func textForms() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[policy.Duration](): {Type: "string"},
		reflect.TypeFor[netip.Addr]():      {Type: "string"},
		reflect.TypeFor[netip.AddrPort]():  {Type: "string"},
	}
}

func schemaOf(name string) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(documents()[name], &jsonschema.ForOptions{TypeSchemas: textForms()})
	if err != nil {
		return nil, err
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "snapfs "+strings.ReplaceAll(name, "-", " ")+" --json"
	return s, nil
}

// The schemas of docs/schemas are made of the types that are printed.
func TestSchemasMatchTheirTypes(t *testing.T) {
	const dir = "../../docs/schemas"
	for name := range documents() {
		s, err := schemaOf(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := published(s)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name+".json")
		if *writeSchemas {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, text, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, text) {
			t.Errorf("%s does not fit what is printed (%v): go generate ./cmd/snapfs", path, err)
		}
	}
	text, err := json.MarshalIndent(profileSchema(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snapfs.toml.json") // of the profile, for editors
	if text = append(text, '\n'); *writeSchemas {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, text) {
		t.Errorf("%s does not fit the grammar of profiles (%v): go generate ./cmd/snapfs", path, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(documents())+1 {
		t.Errorf("%d schemas, want %d: %v", len(files), len(documents())+1, err)
	}
}

// A type with its own form in JSON has a schema that says so, and not one of its fields.
func TestTypesWithTheirOwnFormHaveTheirSchema(t *testing.T) {
	known := textForms()
	known[reflect.TypeFor[time.Time]()] = nil // package jsonschema has it
	seen := map[reflect.Type]bool{}
	var walk func(name string, one reflect.Type)
	walk = func(name string, one reflect.Type) {
		for one.Kind() == reflect.Pointer {
			one = one.Elem()
		}
		if _, ok := known[one]; ok || seen[one] {
			return
		}
		seen[one] = true
		for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
			if one.Implements(own) {
				t.Errorf("%s: %v has a form of its own in JSON, and its schema describes its fields: add it to textForms", name, one)
				return
			}
		}
		switch one.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map:
			walk(name, one.Elem())
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(one) {
				if f.IsExported() && f.Tag.Get("json") != "-" {
					walk(name+"."+f.Name, f.Type)
				}
			}
		}
	}
	for name, one := range documents() {
		walk(name, one)
	}
}

// published returns a schema as text, open for the fields of a later version.
func published(s *jsonschema.Schema) ([]byte, error) {
	text, err := json.Marshal(s)
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	var open func(v any)
	open = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if v["additionalProperties"] == false {
				delete(v, "additionalProperties")
			}
			for _, inner := range v {
				open(inner)
			}
		case []any:
			for _, inner := range v {
				open(inner)
			}
		}
	}
	open(tree)
	if err == nil {
		text, err = json.MarshalIndent(tree, "", "  ")
	}
	return append(text, '\n'), err
}

// schema NAME [FILE] checks the JSON documents in FILE, or what the last exec printed, by the schema of that name.
func schema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: schema name [file]")
	}
	file := append(args, "stdout")[1]
	if err := fitting(args[0], ts.ReadFile(file)); err != nil {
		ts.Fatalf("%s: %v", file, err)
	}
}

// fits checks the JSON documents in text, which a command printed, by the schema of that name.
func fits(t *testing.T, name, text string) {
	t.Helper()
	if err := fitting(name, text); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

// fitting returns an error unless text is JSON documents that fit the schema of that name.
func fitting(name, text string) error {
	s, err := schemaOf(name)
	if err != nil {
		return err
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return err
	}
	n := 0
	for in := json.NewDecoder(strings.NewReader(text)); ; n++ {
		var v any
		err := in.Decode(&v)
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("it holds no JSON")
		case err != nil:
			return err
		}
		if err := resolved.Validate(v); err != nil {
			return fmt.Errorf("it does not fit the schema %s: %w", name, err)
		}
	}
}
