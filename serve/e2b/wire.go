package e2b

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/errs"
)

// A newSandbox is the body of a client's request to make a sandbox, in the form of E2B: the template, the
// time-out, variables and so on.
type newSandbox struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	AutoPause  bool              `json:"autoPause"`
	AutoResume struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	AllowInternet *bool             `json:"allow_internet_access"`
	Network       *networkConfig    `json:"network"`
	VolumeMounts  []json.RawMessage `json:"volumeMounts"`
	MCP           json.RawMessage   `json:"mcp"`
	IAM           json.RawMessage   `json:"iam"`
}

// A networkConfig is the part of a client's request that says what a sandbox may reach, and who may reach its
// ports.
type networkConfig struct {
	AllowOut           []string                   `json:"allowOut,omitempty"`
	DenyOut            []string                   `json:"denyOut,omitempty"`
	DNSServers         []string                   `json:"dnsServers,omitempty"`
	AllowPublicTraffic *bool                      `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string                     `json:"maskRequestHost,omitempty"`
	EgressProxy        json.RawMessage            `json:"egressProxy,omitempty"`
	Rules              map[string]json.RawMessage `json:"rules,omitempty"`
	AllowInternet      *bool                      `json:"allow_internet_access,omitempty"`
}

// A sandboxReply is the reply to a client that made a sandbox or connects to it: how to reach it, with the
// tokens for that.
type sandboxReply struct {
	TemplateID   string  `json:"templateID"`
	SandboxID    string  `json:"sandboxID"`
	ClientID     string  `json:"clientID"`
	EnvdVersion  string  `json:"envdVersion"`
	AccessToken  string  `json:"envdAccessToken"`
	TrafficToken *string `json:"trafficAccessToken"`
	Domain       *string `json:"domain"`
}

// A listedSandbox describes a sandbox in the list that a client of E2B gets.
type listedSandbox struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
}

// A sandboxDetail describes one sandbox in the reply to a request about it, with more than a list has.
type sandboxDetail struct {
	listedSandbox
	AccessToken   string         `json:"envdAccessToken"`
	Domain        *string        `json:"domain"`
	AllowInternet *bool          `json:"allowInternetAccess"`
	Network       *networkConfig `json:"network,omitempty"`
	Lifecycle     struct {
		AutoResume bool   `json:"autoResume"`
		OnTimeout  string `json:"onTimeout"`
	} `json:"lifecycle"`
	PauseMode string `json:"pauseMode,omitempty"`
}

// An apiError is the body of an error on the routes of E2B's control API: those on sandboxes and templates,
// not those on files and processes.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// A snapshotReply describes a snapshot of a sandbox's files to a client, which can make sandboxes from it as
// from a template.
type snapshotReply struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

// timeoutBody, forkBody and snapshotBody are the bodies of a client's requests to set a sandbox's time-out,
// to fork it and to take a snapshot of it.
type (
	timeoutBody struct {
		Timeout *int64 `json:"timeout"`
	}
	forkBody struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}
	snapshotBody struct {
		Name string `json:"name"`
	}
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"code":500,"message":"the reply cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may be gone
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, apiError{status, text})
}

// statusOf returns the HTTP status for an error on a route that controls sandboxes or transfers files.
func statusOf(err error) int {
	for _, m := range []struct {
		kind   error
		status int
	}{
		{errs.ErrNotFound, http.StatusNotFound},
		{errs.ErrExists, http.StatusConflict},
		{errs.ErrInvalid, http.StatusBadRequest},
		{errs.ErrDenied, http.StatusForbidden},
		{errs.ErrReadOnly, http.StatusForbidden},
		{errs.ErrNotSupported, http.StatusBadRequest},
		{errs.ErrBusy, http.StatusConflict},
		{errs.ErrNoSpace, http.StatusInsufficientStorage},
		{errs.ErrInterrupted, http.StatusBadGateway}, // another client ended the sandbox's processes meanwhile
	} {
		if errors.Is(err, m.kind) {
			return m.status
		}
	}
	return http.StatusInternalServerError
}

func fail(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		writeError(w, http.StatusRequestEntityTooLarge, "the body has more than a MiB")
		return
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		writeError(w, http.StatusBadRequest, "the body is not whole")
		return
	}
	writeError(w, statusOf(err), err.Error())
}

// readJSON decodes the JSON body of a request into v; an empty body leaves v unchanged. Errors: ErrInvalid.
func readJSON(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &errs.Error{Op: "reading the request", Kind: errs.ErrInvalid, Err: err}
	}
	return nil
}

// rpcError converts an error of the engine into an error of the protocol Connect, which E2B's clients speak
// with the program in a sandbox (envd).
func rpcError(err error) error {
	if err == nil {
		return nil
	}
	var done *connect.Error
	if errors.As(err, &done) {
		return err
	}
	code := connect.CodeInternal
	for _, m := range []struct {
		kind error
		code connect.Code
	}{
		{errs.ErrNotFound, connect.CodeNotFound},
		{errs.ErrExists, connect.CodeAlreadyExists},
		{errs.ErrInvalid, connect.CodeInvalidArgument},
		{errs.ErrDenied, connect.CodePermissionDenied},
		{errs.ErrReadOnly, connect.CodePermissionDenied},
		{errs.ErrNotSupported, connect.CodeUnimplemented},
		{errs.ErrNoSpace, connect.CodeResourceExhausted},
		{errs.ErrBusy, connect.CodeUnavailable},
		{errs.ErrInterrupted, connect.CodeUnavailable},
	} {
		if errors.Is(err, m.kind) {
			code = m.code
			break
		}
	}
	return connect.NewError(code, err)
}
