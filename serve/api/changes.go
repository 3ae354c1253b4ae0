package api

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/page"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

// The HTTP media types of replies that hold a patch (a diff as git prints it), and a page for review in a browser.
const (
	patchType = "text/x-diff"
	pageType  = "text/html"
)

// A Change is a path that differs between two states of a sandbox's files, in a reply of the HTTP API.
type Change struct {
	Path       string   `json:"path" doc:"relative to the workspace; absolute outside of it"`
	PathBase64 string   `json:"path_base64,omitempty" doc:"the path, where it is not UTF-8"`
	Kind       string   `json:"kind" enum:"added,modified,deleted"`
	What       []string `json:"what,omitempty" doc:"what differs of a modified path"`
}

// A Diff is a reply of the HTTP API: a page of the changes between two states of a sandbox's files.
type Diff struct {
	Changes []Change `json:"changes" nullable:"false"`
	Next    string   `json:"next,omitempty" doc:"after of the next page; missing on the last one"`
	Commits []string `json:"commits,omitempty" doc:"the branches and tags that commits in the sandbox moved"`
}

type diffInput struct {
	Named
	From   string   `query:"from" doc:"the snapshot to compare with; by default the state in which the sandbox was made"`
	To     string   `query:"to" doc:"the snapshot to compare; by default the present files"`
	Paths  []string `query:"path,explode" doc:"only changes at or below these paths"`
	After  int      `query:"after" minimum:"0" doc:"how many changes to leave out from the beginning"`
	Limit  int      `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"how many to return; a patch is always whole"`
	Accept string   `header:"Accept"`
}

// A DriftPath is a path of the real tree that changed since a sandbox was made, in a [Drift].
type DriftPath struct {
	Path string `json:"path" doc:"absolute"`
	Kind string `json:"kind" doc:"added, modified or deleted; on a live base changed, or entries changed"`
	Both bool   `json:"both" doc:"the sandbox has changed it too"`
	Read bool   `json:"read" doc:"the sandbox has read it after it changed"`
}

// A Drift is a reply of the HTTP API: how the real tree has changed since a sandbox was made.
type Drift struct {
	Since time.Time   `json:"since"`
	Exact bool        `json:"exact" doc:"false: paths are found by their change time"`
	Count int         `json:"count" doc:"how many files changed, also those not listed"`
	Both  int         `json:"both" doc:"how many the sandbox has changed too"`
	Paths []DriftPath `json:"paths" nullable:"false" doc:"the first 10,000"`
}

// maxDrift is how many changed paths of the real tree a [Drift], a reply of the API, lists at most. Further
// ones are only counted.
const maxDrift = 10_000

type driftOutput struct{ Body Drift }

func (a *API) addChanges() {
	const path = "/v1/sandboxes/{name}"
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: path + "/diff", id: "diff", summary: "List or print what a sandbox changed",
		detail: "Answers with a patch, as of git diff, where Accept prefers text/x-diff, and with a page for review in a browser, as of snapfs diff --html, where it prefers text/html.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the changes", Content: map[string]*huma.MediaType{
				"application/json": {Schema: a.schemaOf(Diff{})}, patchType: {Schema: &huma.Schema{Type: "string"}}, pageType: {Schema: &huma.Schema{Type: "string"}},
			}}}
		},
	}, a.diff)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/drift", id: "drift", summary: "List how the real tree has changed since"}, a.drift)
	a.addPromotions()
}

func (a *API) diff(ctx context.Context, in *diffInput) (*huma.StreamResponse, error) {
	e, rec, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	changes, err := e.Compare.Diff(ctx, in.Name, in.From, in.To)
	if err != nil {
		return nil, err
	}
	changes.FindCommits() // the files of a repository that it cannot read stay in the list
	for i, path := range in.Paths {
		in.Paths[i] = within(rec.Workspace, path)
	}
	changes.Limit(in.Paths)
	kind := accepts(in.Accept, "application/json", patchType, pageType)
	if kind == "application/json" {
		defer changes.Close()
		out := diffOf(changes, in.After, in.Limit)
		return stream(kind, func(w *writer) { writeJSON(w, out) }), nil
	}
	if err := changes.FindRenames(ctx); err != nil {
		changes.Close()
		return nil, err
	}
	return stream(kind, func(w *writer) {
		defer changes.Close()
		if kind == patchType {
			if err := changes.WritePatch(ctx, w); err != nil {
				fmt.Fprintf(w, "# the patch is not whole: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
			}
			return
		}
		// An error means that the caller has gone, or ends the page early; the page says how much it shows.
		_, _ = page.Write(ctx, w, page.Page{Title: "Changes in " + in.Name, Command: []string{"snapfs", "diff", in.Name}, Made: time.Now(), Parts: changes.PageParts()})
	}), nil
}

func diffOf(changes *compare.Changes, after, limit int) Diff {
	d := Diff{Changes: []Change{}}
	for _, g := range changes.Git {
		for _, ref := range g.Refs {
			d.Commits = append(d.Commits, ref.Ref)
		}
	}
	n := 0
	for _, p := range changes.Parts {
		for _, c := range report.Of(slices.DeleteFunc(slices.Clone(p.Changes), diff.Change.TimeOnly)).Changes {
			if n++; n <= after {
				continue
			}
			if len(d.Changes) == limit {
				d.Next = fmt.Sprint(after + limit)
				return d
			}
			if !p.Workspace {
				c.Path = filepath.Join(p.Root, c.Path)
			}
			d.Changes = append(d.Changes, Change{c.Path, c.PathBase64, c.Kind, c.What})
		}
	}
	return d
}

func (a *API) drift(ctx context.Context, in *Named) (*driftOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	r, err := e.Compare.DriftOf(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if !r.Known {
		return nil, errs.New("looking for drift", in.Name, errs.ErrInterrupted, "the search was abandoned for time")
	}
	d := Drift{Since: r.Since, Exact: r.Exact, Count: r.Files, Both: r.Both, Paths: []DriftPath{}}
	for _, p := range r.Paths[:min(len(r.Paths), maxDrift)] {
		d.Paths = append(d.Paths, DriftPath(p))
	}
	return &driftOutput{d}, nil
}
