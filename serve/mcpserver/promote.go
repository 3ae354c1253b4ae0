package mcpserver

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
)

// question is the id, in the reply to the tool sandbox_promote, of the form that asks a person to approve the
// promotion.
const question = "approve"

// answerTime is how long a person may take to answer whether to promote a sandbox's changes; later answers
// are refused.
const answerTime = 30 * time.Minute

// addPromote adds to m the tool sandbox_promote, which asks a person for approval and then promotes a
// sandbox's changes.
func (s *server) addPromote(m *mcp.Server) {
	mcp.AddTool(m, &mcp.Tool{
		Name: "sandbox_promote", InputSchema: schemaOf[serve.PlanRequest](), OutputSchema: schemaOf[serve.Promoted](),
		Description: "Merge a sandbox's changes of the workspace into the real directory, all of them or none. A person sees the plan and decides. " +
			"If the client cannot ask, the result has a command for the person.",
		Annotations: annotations("Promote changes", destroys, false),
	}, func(ctx context.Context, r *mcp.CallToolRequest, q serve.PlanRequest) (*mcp.CallToolResult, serve.Promoted, error) {
		if r.Params.RequestState == "" {
			asked, err := s.ask(ctx, r, q)
			return asked, serve.Promoted{}, forModel(err)
		}
		done, err := s.answered(ctx, r, q)
		return nil, done, forModel(err)
	})
}

// An asked is the state between the question to a person whether to promote and the answer. The client of the
// server holds it in between, signed, so that the client cannot change it.
type asked struct {
	Plan  serve.PlanRequest `json:"plan"`
	Print string            `json:"fingerprint"`
	// Command is the command by which a person promotes the same plan.
	Command string    `json:"command"`
	Until   time.Time `json:"until"`
	// Once is a random text, by which the server knows an answer that it has had.
	Once string `json:"once"`
}

// ask plans the promotion q, and returns a request to ask a person whether to carry out exactly that plan.
// The SDK sends it to a client with a session as an elicitation, and returns it to one without as a result
// that requires input.
func (s *server) ask(ctx context.Context, r *mcp.CallToolRequest, q serve.PlanRequest) (*mcp.CallToolResult, error) {
	p, err := s.service.Plan(ctx, q)
	if err != nil {
		return nil, err
	}
	if p.Nothing() {
		return nil, errs.New("promoting", q.Sandbox, errs.ErrInvalid, "there is nothing to promote", "sandbox_diff")
	}
	text, err := s.service.Question(p)
	if err != nil {
		return nil, err
	}
	if !mayPromote(r) {
		return nil, p.Refusal("the sender's token has not the scope promote")
	}
	if !canAsk(r) {
		return nil, p.Refusal("this client cannot ask a person")
	}
	state, err := s.sign(asked{Plan: q, Print: p.Fingerprint, Command: p.Command, Until: time.Now().Add(answerTime), Once: rand.Text()})
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		RequestState: state,
		InputRequests: mcp.InputRequestMap{question: &mcp.ElicitParams{
			Mode: "form", Message: text,
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"promote":{"type":"boolean","title":"Promote exactly this",` +
				`"description":"Change the real files as listed"}},"required":["promote"]}`),
		}},
	}, nil
}

// canAsk reports whether the agent's client can show a form to a person, in which the person approves a
// promotion.
func canAsk(r *mcp.CallToolRequest) bool {
	p := r.Session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return false
	}
	e := p.Capabilities.Elicitation
	return e.Form != nil || e.URL == nil // a client of the first version declares neither
}

// answered handles a call of the tool sandbox_promote with a person's answer: it promotes the plan that the
// person was shown, if the person accepted it.
func (s *server) answered(ctx context.Context, r *mcp.CallToolRequest, q serve.PlanRequest) (serve.Promoted, error) {
	const op = "promoting"
	a, err := s.verify(r.Params.RequestState)
	if err != nil {
		return serve.Promoted{}, err
	}
	if !mayPromote(r) {
		return serve.Promoted{}, errs.New(op, q.Sandbox, errs.ErrDenied, "the sender's token has not the scope promote; a person can promote this plan", a.Command)
	}
	if a.Plan.Sandbox != q.Sandbox || !slices.Equal(a.Plan.Paths, q.Paths) {
		return serve.Promoted{}, errs.New(op, q.Sandbox, errs.ErrDenied, "the answer belongs to another call")
	}
	if time.Now().After(a.Until) {
		return serve.Promoted{}, errs.New(op, q.Sandbox, errs.ErrDenied, "the answer came too late", "sandbox_promote")
	}
	e, ok := r.Params.InputResponses[question].(*mcp.ElicitResult)
	if !ok || e.Action != "accept" || e.Content["promote"] != true {
		return serve.Promoted{}, errs.New(op, q.Sandbox, errs.ErrDenied, "it was not approved, so nothing was changed; a person can promote this plan", a.Command)
	}
	if !s.first(a) {
		return serve.Promoted{}, errs.New(op, q.Sandbox, errs.ErrDenied, "the answer was used before", "sandbox_promote")
	}
	return s.service.Promote(ctx, q, a.Print)
}

// first reports whether a person's answer a, which accepts a promotion, is used for the first time. It
// remembers the answer until its time is over, so that no client can use it twice.
func (s *server) first(a asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.used, func(_ string, until time.Time) bool { return now.After(until) })
	if _, again := s.used[a.Once]; again {
		return false
	}
	if s.used == nil {
		s.used = map[string]time.Time{}
	}
	s.used[a.Once] = a.Until
	return true
}

// sign encodes the state a, which a client holds between the question whether to promote and a person's
// answer, as text with a signature that only this process can make.
func (s *server) sign(a asked) (string, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(append(s.mac(data), data...)), nil
}

func (s *server) mac(data []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write(data)
	return h.Sum(nil)
}

// verify decodes the state of a question about a promotion that [server.sign] made and a client has sent
// back. Errors: ErrDenied for any other text.
func (s *server) verify(state string) (a asked, err error) {
	data, err := base64.RawURLEncoding.DecodeString(state)
	if err == nil && (len(data) < sha256.Size || !hmac.Equal(data[:sha256.Size], s.mac(data[sha256.Size:]))) {
		err = errors.New("the signature is not this server's")
	}
	if err == nil {
		err = json.Unmarshal(data[sha256.Size:], &a)
	}
	if err != nil {
		return a, errs.New("promoting", "", errs.ErrDenied, "the answer does not belong to a question of this server", "sandbox_promote")
	}
	return a, nil
}
