package main

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/policy"
)

// profileShapes has the JSON schema for each kind of value that a key of a profile may have, by the text that
// [policy.Key.Value] contains.
var profileShapes = map[string]map[string]any{
	"text":                         {"type": "string"},
	"rule":                         {"type": "string"},
	"directory":                    {"type": "string"},
	"whole number":                 {"type": "integer", "minimum": 1},
	"number":                       {"type": []string{"number", "string"}},
	"size":                         {"type": "string"},
	"rate":                         {"type": "string"},
	"duration":                     {"type": "string"},
	"bool":                         {"type": "boolean"},
	"command":                      {"$ref": "#/$defs/command"},
	"list of commands":             {"type": "array", "items": map[string]any{"$ref": "#/$defs/command"}},
	"text, or list of texts":       {"type": []string{"string", "array"}, "items": map[string]any{"type": "string"}},
	"network, or list of rules":    {"type": []string{"string", "array"}, "items": map[string]any{"type": "string"}},
	"profile, or list of profiles": {"type": []string{"string", "array"}, "items": map[string]any{"type": "string"}},
	"profile":                      {"type": "string"},
	"variable":                     {"type": "string"},
	"variable, or VARIABLE=URL":    {"type": "string"},
	"path":                         {"type": "string"},
	`"auto" or "ask"`:              {"enum": []string{string(policy.Auto), string(policy.Ask)}},
	`"always" or "risky"`:          {"enum": []string{"always", "risky"}},
}

// profileSchema returns the JSON schema of a profile file, made from [policy.Grammar]. Editors check and complete a
// profile by it.
func profileSchema() map[string]any {
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": policy.Name, "type": "object", "additionalProperties": false,
	}
	properties, defs := map[string]any{}, map[string]any{}
	for _, s := range policy.Grammar() {
		object := map[string]any{"type": "object", "description": s.Text, "additionalProperties": false, "properties": keysOf(s)}
		name := strings.Trim(s.Header, "[]")
		table, named := strings.CutSuffix(name, ".NAME")
		switch {
		case named: // a table of sections, each with a name of its own
			properties[table] = map[string]any{"type": "object", "additionalProperties": object}
		case strings.HasPrefix(s.Header, "[["):
			properties[name] = map[string]any{"type": "array", "items": object}
		case strings.HasPrefix(s.Header, "["):
			properties[name] = object
		case strings.HasPrefix(s.Header, "{"):
			defs["command"] = map[string]any{"anyOf": []any{
				map[string]any{"type": "string"}, map[string]any{"type": "array", "items": map[string]any{"type": "string"}}, object,
			}}
		default:
			for name, key := range keysOf(s) {
				properties[name] = key
			}
		}
	}
	root["properties"], root["$defs"] = properties, defs
	return root
}

func keysOf(s policy.Section) map[string]any {
	keys := map[string]any{}
	for _, k := range s.Keys {
		key := map[string]any{"description": k.Text}
		for name, v := range shapeOf(k.Value) {
			key[name] = v
		}
		keys[k.Name] = key
	}
	return keys
}

func shapeOf(value string) map[string]any {
	if s, ok := profileShapes[value]; ok {
		return s
	}
	if strings.HasPrefix(value, "list of ") {
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	}
	return nil
}

func TestTheSchemaHasEveryKey(t *testing.T) {
	properties := profileSchema()["properties"]
	for _, s := range policy.Grammar() {
		name := strings.Trim(s.Header, "[]")
		for _, k := range s.Keys {
			at := []string{k.Name}
			table, named := strings.CutSuffix(name, ".NAME")
			switch {
			case named:
				at = []string{table, "additionalProperties", "properties", k.Name}
			case strings.HasPrefix(s.Header, "[["):
				at = []string{name, "items", "properties", k.Name}
			case strings.HasPrefix(s.Header, "["):
				at = []string{name, "properties", k.Name}
			case strings.HasPrefix(s.Header, "{"):
				continue
			}
			key := properties
			for _, name := range at {
				inner, ok := key.(map[string]any)
				if !ok {
					t.Fatalf("%s: no %q in %v", s.Header, name, key)
				}
				key = inner[name]
			}
			if key, ok := key.(map[string]any); !ok || len(key) < 2 {
				t.Errorf("%s %s: %v has no type: add %q to profileShapes", s.Header, k.Name, key, k.Value)
			}
		}
	}
}
