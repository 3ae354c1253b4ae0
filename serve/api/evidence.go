package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/evidence"
)

// Bounds of the records that clients send back cosigned: the size in bytes of the largest, which is read into memory,
// and how many the server verifies at once.
const (
	maxRecord  = 64 << 20
	maxCosigns = 2
)

// An EvidenceEnd is a reply of the HTTP API: the end of a sandbox's signed record of everything done to it.
type EvidenceEnd struct {
	ID      string `json:"id" doc:"the sandbox's identifier, under which the record stays after its removal"`
	Records int    `json:"records" doc:"how many records there are"`
	Root    string `json:"root" doc:"the root of the Merkle tree over them, in hexadecimal"`
}

// A Cosignature is a reply of the HTTP API: another party has cosigned a sandbox's record.
type Cosignature struct {
	ID      string    `json:"id" doc:"the sandbox's identifier"`
	Witness string    `json:"witness" doc:"the name of the key that cosigned it"`
	Records int64     `json:"records" doc:"how many records it has cosigned"`
	Time    time.Time `json:"time" doc:"when, by the clock of the other party"`
}

type evidenceOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

type evidenceEndOutput struct{ Body EvidenceEnd }

type cosignInput struct {
	Named

	body io.Reader
}

// Resolve stores the unread body of a request, which has the countersigned record.
func (in *cosignInput) Resolve(ctx huma.Context) []error {
	in.body = uploadOf(ctx, maxRecord)
	return nil
}

type cosignatureOutput struct{ Body Cosignature }

func (a *API) addEvidence() {
	const path = "/v1/sandboxes/{name}/evidence"
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: path, id: "export-evidence", summary: "Return the signed record of a sandbox",
		detail: "As snapfs evidence export --open: the record goes on. snapfs evidence verify checks it, without this server. The record of a removed sandbox has its name, or its identifier.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the record", Content: binary()}}
		},
	}, a.exportEvidence)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/end", id: "end-evidence", summary: "Sign the end of a sandbox's record",
		detail: "Unless it has one. What is done to the sandbox afterwards is recorded too, and a verifier names it.",
	}, a.endEvidence)
	add(a, route{
		scope: token.Cosign, method: http.MethodPost, path: path + "/cosignatures", id: "cosign-evidence", summary: "Add another party's cosignature to a sandbox's record",
		detail: "The body is a record from export-evidence, with the cosignature that snapfs evidence countersign adds to it where the other party has its key, of at most 64 MiB. " +
			"Later exports have the cosignature. A party that cosigns at the start and at the end sees whether anything between was replaced.",
		status: http.StatusCreated,
		edit:   func(op *huma.Operation) { op.RequestBody = &huma.RequestBody{Required: true, Content: binary()} },
	}, a.cosignEvidence)
}

// evidence returns the store of the signed records, and the identifier of the sandbox with this name that has one.
func (a *API) evidence(ctx context.Context, name string) (*engine.Engine, *evidence.Store, string, error) {
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	s := evidence.Of(e.Catalog())
	id, err := s.Find(name)
	return e, s, id, err
}

func (a *API) exportEvidence(ctx context.Context, in *Named) (*evidenceOutput, error) {
	_, s, id, err := a.evidence(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	r, err := s.Export(id)
	if err != nil {
		return nil, err
	}
	return &evidenceOutput{fileType, r.Text}, nil
}

func (a *API) endEvidence(ctx context.Context, in *Named) (*evidenceEndOutput, error) {
	e, s, id, err := a.evidence(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var r *evidence.Exported
	if rec, rerr := e.Catalog().Get(in.Name); rerr == nil && rec.ID == id {
		r, err = evidence.EndAndExport(ctx, e, rec)
	} else { // its removal has ended the record
		r, err = s.Export(id)
	}
	if err != nil {
		return nil, err
	}
	return &evidenceEndOutput{EvidenceEnd{id, r.Records, r.Root}}, nil
}

func (a *API) cosignEvidence(ctx context.Context, in *cosignInput) (*cosignatureOutput, error) {
	_, s, id, err := a.evidence(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if !a.cosigns.take() {
		return nil, problem.Refused(http.StatusServiceUnavailable, errs.ErrBusy, "this server verifies other records; try again")
	}
	defer a.cosigns.release()
	text, err := io.ReadAll(in.body)
	if err != nil {
		return nil, err
	}
	c, err := s.AddCosigned(id, text)
	if errors.Is(err, evidence.ErrNotCosigned) {
		return nil, problem.Refused(http.StatusUnprocessableEntity, errs.ErrCorrupt, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return &cosignatureOutput{Cosignature{id, c.Witness, c.Records, c.Time}}, nil
}
