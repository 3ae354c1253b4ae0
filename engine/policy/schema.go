package policy

import "strings"

// shapes has the JSON schema for each kind of value that a key of a profile may have, by the text that
// [Key.Value] contains.
var shapes = map[string]map[string]any{
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
	`"auto" or "ask"`:              {"enum": []string{string(Auto), string(Ask)}},
	`"always" or "risky"`:          {"enum": []string{whenAlways, whenRisky}},
}

// Schema returns the JSON schema of a profile file, made from [Grammar]. Editors check and complete a profile
// by it.
func Schema() map[string]any {
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": Name, "type": "object", "additionalProperties": false,
	}
	properties, defs := map[string]any{}, map[string]any{}
	for _, s := range Grammar() {
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

func keysOf(s Section) map[string]any {
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
	if s, ok := shapes[value]; ok {
		return s
	}
	if strings.HasPrefix(value, "list of ") {
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	}
	return nil
}
