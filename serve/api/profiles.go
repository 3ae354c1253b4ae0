package api

import (
	"context"
	"net/http"

	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

// A Profile is a reply of the HTTP API: a profile, which holds limits and rules for sandboxes, as TOML text.
type Profile struct {
	Name string `json:"name"`
	Text string `json:"text" doc:"TOML; see snapfs help profile"`
}

type profileInput struct {
	Name string `path:"name" doc:"as in the list"`
}

type profileOutput struct{ Body Profile }

func (a *API) addProfiles() {
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: "/v1/profiles", id: "list-profiles", summary: "List the profiles that have a name",
		detail: "Those built into snapfs, and those of the site, which replace them.",
	}, func(context.Context, *struct{}) (*struct{ Body []policy.NamedProfile }, error) {
		list, err := policy.List()
		return &struct{ Body []policy.NamedProfile }{list}, err
	})
	add(a, route{scope: token.Read, method: http.MethodGet, path: "/v1/profiles/{name}", id: "get-profile", summary: "Return the text of a profile"},
		func(_ context.Context, in *profileInput) (*profileOutput, error) {
			if !policy.IsProfileName(in.Name) { // else any file could be read with a token
				return nil, errs.New("reading the profile", in.Name, errs.ErrInvalid, "not the name of a profile", "snapfs profile list")
			}
			text, err := policy.Text(in.Name)
			return &profileOutput{Profile{in.Name, string(text)}}, err
		})
}
