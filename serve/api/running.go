package api

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/command"
	"github.com/snapfs/snapfs/serve/token"
)

// execHeader is the response header with the ID of a command whose output the API streams to a client. By
// this ID the client sends input and signals to the command.
const execHeader = "Snapfs-Exec"

// A running lists the commands whose output is streamed to a client, so that further requests can send input
// and signals to them. A command is in the list as long as its connection lasts.
type running struct {
	mu  sync.Mutex
	all map[string]*command.Running // by sandbox and ID
}

// add adds the command x of a sandbox to the list of commands to which requests can send input, until the
// caller calls done. It returns the command's new ID.
func (s *running) add(sandbox string, x *command.Running) (id string, done func()) {
	id = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*command.Running{}
	}
	key := sandbox + "/" + id
	s.all[key] = x
	return id, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, key)
	}
}

// find returns the running command that the URL of a request names by sandbox and ID. Errors: ErrNotFound.
func (s *running) find(in ExecPath) (*command.Running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.all[in.Name+"/"+in.ID]; x != nil {
		return x, nil
	}
	return nil, errs.New("looking for a command", in.Name, errs.ErrNotFound, "no streamed command has this ID")
}

// An ExecPath is the part of a request's URL that names a running command of a sandbox.
type ExecPath struct {
	Named
	ID string `path:"id" maxLength:"64" doc:"the header Snapfs-Exec of the command's stream"`
}

type stdinInput struct {
	ExecPath
	Body struct {
		Text   string `json:"text,omitempty"`
		Base64 []byte `json:"base64,omitempty" doc:"bytes, in place of text"`
		Close  bool   `json:"close,omitempty" doc:"end the input after this"`
	}
}

type stdinOutput struct {
	Body struct {
		Written int `json:"written" doc:"how many bytes the command's pipe has taken: fewer than were sent if the command did not read them within 30 seconds"`
	}
}

type signalInput struct {
	ExecPath
	Body struct {
		Signal string `json:"signal" enum:"HUP,INT,QUIT,KILL,TERM,USR1,USR2,STOP,CONT"`
	}
}

// inputTime is how long a client's request that writes a command's input waits for a command that does not
// read it. Then the reply says how many bytes were written.
const inputTime = 30 * time.Second

func (a *API) addRunning() {
	const path = "/v1/sandboxes/{name}/exec/{id}"
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/stdin", id: "write-stdin", summary: "Write to the standard input of a running command", stream: true,
		detail: "Of a command whose output is streamed and that was started with stdin_open. 409 once the input has ended.",
	}, func(ctx context.Context, in *stdinInput) (*stdinOutput, error) {
		x, err := a.running.find(in.ExecPath)
		if err != nil {
			return nil, err
		}
		data := in.Body.Base64
		if in.Body.Text != "" {
			if data != nil {
				return nil, errs.New("writing input", in.Name, errs.ErrInvalid, "text and base64 exclude each other")
			}
			data = []byte(in.Body.Text)
		}
		out := &stdinOutput{}
		if len(data) > 0 {
			waiting, done := context.WithTimeout(ctx, inputTime)
			defer done()
			out.Body.Written, err = x.Write(waiting, data)
			if err != nil && waiting.Err() == nil {
				return nil, err
			}
		}
		if in.Body.Close && out.Body.Written == len(data) {
			err = x.CloseInput()
		} else {
			err = ctx.Err()
		}
		return out, err
	})
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/signal", id: "send-signal", summary: "Send a signal to a running command", status: http.StatusNoContent,
		detail: "To a command whose output is streamed, and the processes of its group.",
	}, func(_ context.Context, in *signalInput) (*struct{}, error) {
		x, err := a.running.find(in.ExecPath)
		if err != nil {
			return nil, err
		}
		return nil, x.Signal(in.Body.Signal)
	})
}
