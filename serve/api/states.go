package api

import (
	"context"
	"net/http"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

type snapshotsOutput struct {
	Body struct {
		Snapshots []Snapshot `json:"snapshots" nullable:"false" doc:"oldest first"`
	}
}

type snapshotInput struct {
	Named
	Body *struct {
		Name string `json:"name,omitempty" maxLength:"64" pattern:"^([A-Za-z0-9][A-Za-z0-9._-]*)?$" patternDescription:"letters, digits, dots, underscores and dashes" doc:"by default one that snapfs chooses"`
	} `required:"false"`
}

type snapshotOutput struct{ Body Snapshot }

type rollbackInput struct {
	Named
	Body *struct {
		To   string `json:"to,omitempty" doc:"the snapshot; by default the state in which the sandbox was made"`
		Stop bool   `json:"stop,omitempty" doc:"end the sandbox's processes first; else 409 where some run"`
		Live bool   `json:"live,omitempty" doc:"let the processes go on with the files of the snapshot, where the backend can"`
	} `required:"false"`
}

type refreshInput struct {
	Named
	Body *struct {
		Mine   []string `json:"mine,omitempty" doc:"resolve conflicts at these paths with the sandbox's version"`
		Theirs []string `json:"theirs,omitempty" doc:"resolve conflicts at these paths with the real tree's version"`
		Stop   bool     `json:"stop,omitempty" doc:"end the sandbox's processes first; else 409 where some run"`
	} `required:"false"`
}

// A Refreshed is a reply of the HTTP API: the result of bringing a sandbox up to date with the real tree,
// with the conflicts that remain.
type Refreshed struct {
	Merged    int        `json:"merged" doc:"how many paths both sides had changed and could be merged"`
	Resolved  int        `json:"resolved" doc:"how many conflicts of an earlier refresh were answered"`
	Conflicts []Conflict `json:"conflicts" nullable:"false" doc:"what to resolve in the sandbox"`
}

type refreshOutput struct{ Body Refreshed }

func (a *API) addStates() {
	const path = "/v1/sandboxes/{name}"
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/snapshots", id: "list-snapshots", summary: "List the snapshots of a sandbox"},
		func(ctx context.Context, in *Named) (*snapshotsOutput, error) {
			_, rec, err := a.sandbox(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			out := &snapshotsOutput{}
			out.Body.Snapshots = []Snapshot{}
			for _, m := range rec.Snapshots {
				out.Body.Snapshots = append(out.Body.Snapshots, snapshotOf(m))
			}
			return out, nil
		})
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/snapshots", id: "new-snapshot", summary: "Take a snapshot", status: http.StatusCreated,
		detail: "Records the present files of a sandbox under a name. Processes are frozen for that instant.",
	}, a.snapshot)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/rollback", id: "rollback", summary: "Return to a snapshot", status: http.StatusNoContent,
		detail: "Changes since the last snapshot are lost.",
	}, a.rollback)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path + "/refresh", id: "refresh", summary: "Bring the real tree's changes into a sandbox",
		detail: "Makes the present real tree the base and merges the sandbox's changes on top. The real tree does not change.",
	}, a.refresh)
}

func (a *API) snapshot(ctx context.Context, in *snapshotInput) (*snapshotOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	name := ""
	if in.Body != nil {
		name = in.Body.Name
	}
	m, err := e.Snapshot(ctx, in.Name, name)
	return &snapshotOutput{snapshotOf(m)}, err
}

func (a *API) rollback(ctx context.Context, in *rollbackInput) (*struct{}, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if in.Body == nil {
		return nil, e.Rollback(ctx, in.Name, "")
	}
	if in.Body.Live && in.Body.Stop {
		return nil, errs.New("rolling back", in.Name, errs.ErrInvalid, "live and stop exclude each other")
	}
	if in.Body.Live {
		return nil, e.RollbackLive(ctx, in.Name, in.Body.To)
	}
	if in.Body.Stop {
		if err := e.Supervise.Stop(ctx, in.Name); err != nil {
			return nil, err
		}
	}
	return nil, e.Rollback(ctx, in.Name, in.Body.To)
}

func (a *API) refresh(ctx context.Context, in *refreshInput) (*refreshOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var o reconcile.RefreshOptions
	if in.Body != nil {
		o.Mine, o.Theirs = in.Body.Mine, in.Body.Theirs
		if in.Body.Stop {
			if err := e.Supervise.Stop(ctx, in.Name); err != nil {
				return nil, err
			}
		}
	}
	r, err := e.Reconcile.Refresh(ctx, in.Name, o)
	return &refreshOutput{Refreshed{r.Merged, r.Resolved, conflictsOf(r.Conflicts)}}, err
}
