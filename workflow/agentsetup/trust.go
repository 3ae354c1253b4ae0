package agentsetup

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/internal/run"
)

// A Trust says whether Codex runs snapfs's hooks: it runs only hooks that the person has accepted.
type Trust string

// The values of Trust: the answers of the coding agent Codex about whether it runs snapfs's hooks.
const (
	Trusted   Trust = "trusted"
	Untrusted Trust = "not trusted"
	Modified  Trust = "changed since they were trusted"
	Unknown   Trust = "trust unknown"
)

// trustTime bounds the wait for Codex's answer about its hooks, after which the trust is Unknown. Its server
// usually answers in 0.3 s.
const trustTime = 10 * time.Second

// CodexTrust asks Codex whether it runs snapfs's hooks, by its app-server (codex app-server, hooks/list). The
// answer is Unknown if there is no program codex or it does not answer. Cost: half a second.
func CodexTrust(ctx context.Context, s Setup) Trust {
	path, err := s.Path()
	if err != nil {
		return Unknown
	}
	dir := s.Project
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return Unknown
		}
	}
	ctx, cancel := context.WithTimeout(ctx, trustTime)
	defer cancel()
	in, questions := io.Pipe()
	answers := &lineFinder{found: questions.Close} // with its input the server ends
	go func() {
		for _, q := range []any{
			request{ID: 1, Method: "initialize", Params: map[string]any{"clientInfo": map[string]string{"name": "snapfs", "version": "1"}}}, //nolint:misspell // the protocol's name
			request{Method: "initialized"}, //nolint:misspell // the protocol's name
			request{ID: listID, Method: "hooks/list", Params: map[string]any{"cwds": []string{dir}}},
		} {
			text, err := json.Marshal(q)
			if err == nil {
				_, err = questions.Write(append(text, '\n'))
			}
			if err != nil {
				return // the server has ended
			}
		}
	}()
	_ = run.Run(ctx, run.Program{Name: "codex", Args: []string{"app-server"}, Dir: dir, Stdin: in, Stdout: answers}) // its answer decides
	_ = in.Close()                                                                                                   // it never fails
	return trustIn(answers.line(), path)
}

// listID is the id of the request to Codex for its list of hooks, by which the answer is recognised.
const listID = 2

// A request is a JSON-RPC message that snapfs sends to the app-server of the coding agent Codex, to ask for
// its hooks.
type request struct {
	ID     int            `json:"id,omitempty"`
	Method string         `json:"method"`
	Params map[string]any `json:"params,omitempty"`
}

// trustIn returns whether Codex runs snapfs's hooks of the configuration file at path, by answer, its reply
// to hooks/list.
func trustIn(answer []byte, path string) Trust {
	var r struct {
		Result struct {
			Data []struct {
				Hooks []struct{ Command, SourcePath, TrustStatus string }
			}
		}
	}
	if json.Unmarshal(answer, &r) != nil {
		return Unknown
	}
	trust := Unknown
	for _, d := range r.Result.Data {
		for _, h := range d.Hooks {
			if h.SourcePath != path || !strings.Contains(h.Command, "snapfs") {
				continue
			}
			switch {
			case h.TrustStatus == "modified":
				return Modified
			case h.TrustStatus != "trusted" && h.TrustStatus != "managed":
				trust = Untrusted
			case trust == Unknown:
				trust = Trusted
			}
		}
	}
	return trust
}

// A lineFinder is a writer that gets the output of the app-server of the coding agent Codex and finds the
// line with the list of hooks in it.
type lineFinder struct {
	found func() error
	mu    sync.Mutex
	text  []byte
	got   []byte
}

func (f *lineFinder) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = append(f.text, p...)
	for f.got == nil {
		line, rest, whole := bytes.Cut(f.text, []byte("\n"))
		if !whole {
			break
		}
		f.text = rest
		var r struct{ ID int }
		if json.Unmarshal(line, &r) == nil && r.ID == listID {
			f.got = line
			_ = f.found() // closing a pipe never fails
		}
	}
	return len(p), nil
}

func (f *lineFinder) line() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}
