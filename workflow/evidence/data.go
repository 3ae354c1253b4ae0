package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// dataOf returns the data of the evidence log's entry about the event e. The arguments of a command except
// the name of the program, and the values of its variables, are redacted.
func dataOf(l *audit.Log, e events.Event) (map[string]any, error) {
	d := e.Data
	data := map[string]any{}
	text := func(name, value string) {
		if value != "" {
			data[name] = strings.ToValidUTF8(value, "�")
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			data[name] = value
		}
	}
	texts := func(name string, values []string) {
		if len(values) > 0 {
			data[name] = valid(values)
		}
	}
	text("workspace", d.Workspace)
	text("origin", d.Origin)
	text("name", d.Name)
	text("run", d.Run)
	text("limit", d.Limit)
	text("value", d.Value)
	text("reason", d.Reason)
	text("host", d.Host)
	text("promotion", d.Promotion)
	text("plan", d.Plan)
	text("target", d.Target)
	texts("backends", d.Backends)
	texts("paths", d.Paths)
	texts("held", d.Held)
	texts("crossed", d.Crossed)
	texts("check", d.Check)
	if d.Output != "" {
		text("output", outputDigest(d.Output))
	}
	number("port", int64(d.Port))
	number("changes", int64(d.Changes))
	number("memory_bytes", d.MemoryBytes)
	number("cpu_milliseconds", milliseconds(d.CPUSeconds))
	if d.Status != nil {
		data["status"] = int64(*d.Status)
		data["milliseconds"] = milliseconds(d.Seconds)
	}
	if len(d.Command) > 0 && e.Type == events.CommandStarted {
		hidden, err := l.Redact(append(d.Command[1:len(d.Command):len(d.Command)], d.Env...))
		if err != nil {
			return nil, err
		}
		n := len(d.Command) - 1
		data["program"] = strings.ToValidUTF8(d.Command[0], "�")
		data["arguments"] = append([]string{}, hidden[:n]...)
		env := map[string]string{}
		for i, v := range d.Env {
			name, _, _ := strings.Cut(v, "=")
			env[strings.ToValidUTF8(name, "�")] = hidden[n+i]
		}
		data["env"] = env
	}
	return data, nil
}

// outputDigest returns the digest of the file at path, which has the output of a command, for the evidence
// log; "" if it cannot be read.
func outputDigest(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// valid returns texts in valid UTF-8, because an evidence log must contain no other bytes: U+FFFD replaces
// them.
func valid(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = strings.ToValidUTF8(text, "�")
	}
	return all
}

func milliseconds(seconds float64) int64 {
	return time.Duration(seconds * float64(time.Second)).Milliseconds()
}
