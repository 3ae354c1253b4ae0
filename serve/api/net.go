package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

// A Net is a reply of the HTTP API about the network of a sandbox: which servers it may reach, and which
// accesses it tried.
type Net struct {
	Network   string        `json:"network" doc:"none, host, or allow: with rules"`
	Decisions []NetDecision `json:"decisions" nullable:"false" doc:"oldest first; of very many, the last are stored"`
	Counters  NetCounters   `json:"counters" doc:"over the sandbox's life"`
}

// A NetDecision is one access of a sandbox to the network, and whether the sandbox's network proxy allowed
// it.
type NetDecision struct {
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	ID       uint64    `json:"id,omitempty" doc:"the same in all decisions about one connection"`
	Name     string    `json:"name,omitempty" doc:"the name that it asked for"`
	Address  string    `json:"address,omitempty"`
	Port     uint16    `json:"port,omitempty"`
	Allowed  bool      `json:"allowed"`
	Rule     string    `json:"rule,omitempty" doc:"the rule that allowed it"`
	Why      string    `json:"why,omitempty" doc:"the reason of a refusal, a failure or an end"`
	Failed   bool      `json:"failed,omitempty" doc:"allowed, but not reached"`
	Ended    bool      `json:"ended,omitempty" doc:"the connection is over"`
	BytesIn  int64     `json:"bytes_in,omitempty"`
	BytesOut int64     `json:"bytes_out,omitempty"`
}

// NetCounters are, in a [Net], the totals of a sandbox's network accesses over its life, such as connections
// and bytes.
type NetCounters struct {
	Queries  int64 `json:"queries" doc:"for names"`
	Refused  int64 `json:"refused"`
	Opened   int64 `json:"opened" doc:"connections"`
	Open     int64 `json:"open" doc:"connections that are open now"`
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
	Lost     int64 `json:"lost" doc:"decisions that were not stored, as there were too many at once"`
}

type netInput struct {
	Named
	Refused bool `query:"refused" doc:"only refusals"`
	Limit   int  `query:"limit" minimum:"0" maximum:"10000" default:"1000" doc:"how many decisions to return, the last ones"`
}

type netOutput struct{ Body Net }

type allowNetInput struct {
	Named
	Body struct {
		Allow []string `json:"allow" minItems:"1" maxItems:"1000" example:"[\"git.example.org:443\"]" doc:"rules, as in snapfs new --net allow:RULES"`
	}
}

func (a *API) addNet() {
	const path = "/v1/sandboxes/{name}/net"
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "get-net", summary: "Return the network rules and decisions of a sandbox"}, a.net)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path, id: "allow-net", summary: "Allow a sandbox more destinations",
		detail: "Also for its running processes. A sandbox without a network gets one when its next command starts; 409 while some run.",
	}, a.allowNet)
}

func (a *API) net(ctx context.Context, in *netInput) (*netOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := &netOutput{Net{Decisions: []NetDecision{}}}
	if out.Body.Network, err = e.Supervise.NetworkOf(in.Name); err != nil {
		return nil, err
	}
	c, err := e.Supervise.NetworkCounters(in.Name)
	if err != nil {
		return nil, err
	}
	out.Body.Counters = NetCounters{c.Queries, c.Refused, c.Opened, c.Open, c.BytesIn, c.BytesOut, c.EventsLost}
	all, err := e.Supervise.NetworkEvents(in.Name)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if in.Refused && (v.Allowed || v.Asked) {
			continue
		}
		d := NetDecision{
			Time: v.Time, Kind: string(v.Kind), ID: v.ID, Name: v.Name, Port: v.Port, Allowed: v.Allowed, Rule: v.Rule, Why: v.Why,
			Failed: v.Failed, Ended: v.Ended, BytesIn: v.BytesIn, BytesOut: v.BytesOut,
		}
		if v.Addr.IsValid() {
			d.Address = v.Addr.String()
		}
		out.Body.Decisions = append(out.Body.Decisions, d)
	}
	if n := len(out.Body.Decisions); n > in.Limit {
		out.Body.Decisions = out.Body.Decisions[n-in.Limit:]
	}
	return out, nil
}

func (a *API) allowNet(ctx context.Context, in *allowNetInput) (*netOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	rules, _, err := hostfs.NetworkRules(hostfs.AllowNet + strings.Join(in.Body.Allow, ","))
	if err != nil {
		return nil, errs.New("allowing destinations", in.Name, errs.ErrInvalid, err.Error())
	}
	if _, err := e.Supervise.AllowNetwork(ctx, in.Name, rules); err != nil {
		return nil, err
	}
	return a.net(ctx, &netInput{Named: in.Named})
}
