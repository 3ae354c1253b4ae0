package serve

import (
	"context"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
)

// A Receipt documents a sandbox for an agent: from which state it was made, its policy and its promotions.
type Receipt struct {
	Sandbox     string            `json:"sandbox"`
	ID          string            `json:"id"`
	Workspace   string            `json:"workspace"`
	Created     time.Time         `json:"created"`
	Origin      string            `json:"origin,omitempty"`
	Base        string            `json:"base"`
	Trees       []ReceiptTree     `json:"trees"`
	Policy      catalog.Policy    `json:"policy"`
	Masked      []string          `json:"masked,omitempty"`
	Proof       *catalog.Proof    `json:"proof,omitempty"`
	LimitHit    *catalog.LimitHit `json:"limit_hit,omitempty"`
	Checkpoints []Checkpoint      `json:"checkpoints,omitempty"`
	Promotions  []Promotion       `json:"promotions"`
}

// A ReceiptTree is one of the trees that a sandbox has cloned, in the sandbox's [Receipt], which documents
// how it was made.
type ReceiptTree struct {
	Path    string `json:"path"`
	Backend string `json:"backend"`
}

// A Promotion is a promotion from a sandbox that a person can still undo, in the sandbox's [Receipt].
type Promotion struct {
	ID   string    `json:"id"`
	When time.Time `json:"when"`
	Path string    `json:"path"`
}

// Receipt returns the [Receipt] of the sandbox that q names: its base, its policy and its promotions.
func (s *Service) Receipt(ctx context.Context, q Named) (Receipt, error) {
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return Receipt{}, err
	}
	i, err := e.Show(ctx, q.Sandbox)
	if err != nil {
		return Receipt{}, err
	}
	r := Receipt{
		Sandbox: i.Name, ID: i.ID, Workspace: i.Workspace, Created: i.Created, Origin: i.Origin, Base: i.Base, Policy: i.Policy,
		Masked: i.Masked[:min(len(i.Masked), mostPaths)], Proof: i.Proof, LimitHit: i.LimitHit, Trees: []ReceiptTree{}, Promotions: []Promotion{},
	}
	for _, t := range i.Trees {
		r.Trees = append(r.Trees, ReceiptTree{t.Path, t.Driver})
	}
	for _, m := range i.Snapshots {
		r.Checkpoints = append(r.Checkpoints, checkpointOf(i.Name, m))
	}
	all, err := e.Reconcile.Promotions()
	if err != nil {
		return r, err
	}
	for _, p := range all {
		if p.Sandbox == i.Name {
			r.Promotions = append(r.Promotions, Promotion{p.Group, p.When, p.Path})
		}
	}
	return r, nil
}

// A Log lists the background commands of a sandbox, with the output of the last one.
type Log struct {
	Sandbox  string          `json:"sandbox"`
	Commands []LoggedCommand `json:"commands"`
	// Last is the output of the last command.
	Last *Text `json:"last,omitempty"`
}

// A LoggedCommand is a background command in the [Log] of a sandbox: its number, its arguments and its state.
type LoggedCommand struct {
	Command int       `json:"command"`
	Args    []string  `json:"args"`
	Began   time.Time `json:"began"`
	State   string    `json:"state"`
}

// Log returns the background commands of the sandbox that q names, with the output of the last one.
func (s *Service) Log(ctx context.Context, q Named) (Log, error) {
	r := Log{Sandbox: q.Sandbox, Commands: []LoggedCommand{}}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return r, err
	}
	all, err := e.Supervise.DetachedOf(q.Sandbox)
	if err != nil || len(all) == 0 {
		return r, err
	}
	for _, d := range all {
		r.Commands = append(r.Commands, LoggedCommand{d.ID, d.Args, d.Began, d.Describe()})
	}
	c := newClip()
	err = e.Supervise.CopyOutput(ctx, c, q.Sandbox, all[len(all)-1].ID, false)
	text := c.text()
	r.Last = &text
	return r, err
}
