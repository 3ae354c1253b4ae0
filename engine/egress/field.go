package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// maxField is how many bytes a secret may have that is one field of a JSON file; a longer one is an error. A pipe,
// through which the network proxy gets it, holds four times as much.
const maxField = 16 << 10

// FieldOf returns the text at the place field of the JSON file at path: names of members joined by dots, as
// "claudeAiOauth.accessToken". It is for secrets that programs store in files with other values beside them.
// Errors: those of reading the file, and one without the file's content if it has no text there.
func FieldOf(path, field string) (string, error) {
	value, err := ValueAt(path, field)
	if err != nil {
		return "", err
	}
	text, _ := value.(string)
	switch {
	case text == "":
		return "", fmt.Errorf("%s has no text at %s", path, field)
	case len(text) > maxField:
		return "", fmt.Errorf("%s has more than 16 KiB at %s", path, field)
	}
	return text, nil
}

// ValueAt returns the decoded value at the place field of the JSON file at path, or nil if there is none; see
// [FieldOf]. Errors: those of reading the file, and one without the file's content if it is not JSON.
func ValueAt(path, field string) (any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var value any
	if json.Unmarshal(data, &value) != nil {
		return nil, fmt.Errorf("%s is not JSON", path)
	}
	for name := range strings.SplitSeq(field, ".") {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	return value, nil
}

// pipeWith returns the reading end of a pipe that holds value, for the network proxy, which gets a secret by
// descriptor. The caller closes it.
func pipeWith(value string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(value)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
