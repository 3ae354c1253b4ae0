package gitresult

import (
	"time"

	"github.com/snapfs/snapfs/internal/gitrepo"
)

// A Report lists the refs of one git repository that a sandbox moved and what a promotion does with them, for
// the terminal and as JSON.
type Report struct {
	// Repository is the absolute path of the repository.
	Repository string      `json:"repository"`
	Refs       []RefReport `json:"refs"`
}

// A RefReport describes one git ref, such as a branch, that the sandbox moved, with its new commits, for a
// report to the user.
type RefReport struct {
	// Ref is the sandbox's full name of the ref, or "HEAD".
	Ref string `json:"ref"`
	// From is the real commit before, "" for none, and To the sandbox's.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Commits are the new commits, newest first, at most maxCommits; More is the number of
	// others.
	Commits []CommitReport `json:"commits"`
	More    int            `json:"more,omitempty"`
	// How says what becomes of the ref, As is the ref in the real repository and Result
	// its commit. All are empty in a list of changes. Why is the reason for a How of
	// "stored".
	How    How    `json:"how,omitempty"`
	As     string `json:"as,omitempty"`
	Result string `json:"result,omitempty"`
	Why    string `json:"why,omitempty"`
}

// A CommitReport describes one new git commit of the sandbox in a report for the user.
type CommitReport struct {
	ID      string    `json:"id"`
	Subject string    `json:"subject"`
	Author  string    `json:"author"`
	When    time.Time `json:"when"`
}

// maxCommits is how many new commits of the sandbox a report lists for each git ref, the newest ones; it
// counts the others.
const maxCommits = 100

func reportOf(m *Moved) RefReport {
	r := RefReport{Ref: m.Name, To: m.Mine.String(), Commits: []CommitReport{}, More: max(0, len(m.New)-maxCommits)}
	if !m.Real.Zero() {
		r.From = m.Real.String()
	}
	for _, c := range m.New[:len(m.New)-r.More] {
		r.Commits = append(r.Commits, CommitReport{c.ID.String(), c.Subject(), c.AuthorName(), c.When()})
	}
	return r
}

// Report lists the git refs that the sandbox moved, for the user. It does not decide how a promotion brings
// them.
func (r *Repository) Report() Report {
	all := Report{Repository: r.Path(), Refs: []RefReport{}}
	for i := range r.Moved {
		all.Refs = append(all.Refs, reportOf(&r.Moved[i]))
	}
	return all
}

func (r *Report) add(m *Moved, how How, as string, result gitrepo.ID, why string) {
	one := reportOf(m)
	one.How, one.As, one.Result, one.Why = how, as, result.String(), why
	r.Refs = append(r.Refs, one)
}
