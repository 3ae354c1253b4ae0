//go:build linux

package api

import (
	"net/http"
	"strings"

	"github.com/snapfs/snapfs/serve/client"
)

// A sent has both results of a method of the generated client: the reply, or why there is none.
type sent[R client.Reply] struct {
	reply R
	err   error
}

// call takes the results of a method of the generated client, for [sent.is].
func call[R client.Reply](reply R, err error) sent[R] { return sent[R]{reply, err} }

// is fails the test unless the server answered with this status, and with a problem document where that is an error.
// It returns the reply.
func (s sent[R]) is(d *desk, status int) R {
	d.t.Helper()
	if s.err != nil {
		d.t.Fatal(s.err)
	}
	p := s.reply.GetApplicationproblemJSONDefault()
	if got := s.reply.StatusCode(); got != status {
		d.t.Fatalf("status %d, want %d: %+v", got, status, p)
	}
	if status >= http.StatusBadRequest && (p == nil || p.Kind == "" || int(p.Status) != status) {
		d.t.Errorf("status %d: no problem: %+v", status, p)
	}
	return s.reply
}

// connectClient makes the generated client one of the same server as d.client, with the token that d has at each
// request.
func (d *desk) connectClient() {
	d.t.Helper()
	var err error
	d.c, err = client.NewClientWithResponses(d.base, client.WithHTTPClient(d.client), client.WithRequestEditorFn(d.authorize))
	if err != nil {
		d.t.Fatal(err)
	}
}

// make makes a sandbox with the strictest policy.
func (d *desk) make(name string) {
	d.t.Helper()
	call(d.c.NewSandboxWithResponse(d.t.Context(), nil, client.NewSandbox{Name: name})).is(d, http.StatusCreated)
}

// exec runs a shell command in a sandbox and returns its result.
func (d *desk) exec(name, command string) *client.ExecResult {
	d.t.Helper()
	return d.run(name, client.ExecRequest{Command: command})
}

// run runs a command in a sandbox and returns its result.
func (d *desk) run(name string, q client.ExecRequest) *client.ExecResult {
	d.t.Helper()
	return call(d.c.ExecWithResponse(d.t.Context(), name, nil, q)).is(d, http.StatusOK).JSON200
}

// start starts a command in the sandbox t1 that goes on by itself.
func (d *desk) start(q client.CommandLine) *client.Command {
	d.t.Helper()
	return call(d.c.StartCommandWithResponse(d.t.Context(), "t1", nil, q)).is(d, http.StatusCreated).JSON201
}

// write writes a file of the sandbox t1, or fails with this status.
func (d *desk) write(status int, file client.WriteFileParams, content string) {
	d.t.Helper()
	call(d.c.WriteFileWithBodyWithResponse(d.t.Context(), "t1", &file, fileType, strings.NewReader(content))).is(d, status)
}

// read returns a file of the sandbox t1 from an offset on.
func (d *desk) read(path string, offset int64) string {
	d.t.Helper()
	p := &client.ReadFileParams{Path: path, Offset: &offset}
	return string(call(d.c.ReadFileWithResponse(d.t.Context(), "t1", p)).is(d, http.StatusOK).Body)
}

// submit stores a job, or fails with this status.
func (d *desk) submit(status int, q client.NewJob) *client.Job {
	d.t.Helper()
	return call(d.c.SubmitJobWithResponse(d.t.Context(), nil, q)).is(d, status).JSON201
}

// job describes a job.
func (d *desk) job(number int64) *client.Job {
	d.t.Helper()
	return call(d.c.GetJobWithResponse(d.t.Context(), number)).is(d, http.StatusOK).JSON200
}

// jobs lists jobs.
func (d *desk) jobs(p client.ListJobsParams) *client.JobsOutputBody {
	d.t.Helper()
	return call(d.c.ListJobsWithResponse(d.t.Context(), &p)).is(d, http.StatusOK).JSON200
}

// approve approves a job on a plan, or fails with this status.
func (d *desk) approve(status int, number int64, plan string) *client.Job {
	d.t.Helper()
	return call(d.c.ApproveJobWithResponse(d.t.Context(), number, nil, client.ApproveInputBody{Plan: plan})).is(d, status).JSON200
}

// reject rejects a job, or fails with this status.
func (d *desk) reject(status int, number int64) *client.Job {
	d.t.Helper()
	return call(d.c.RejectJobWithResponse(d.t.Context(), number, nil)).is(d, status).JSON200
}
