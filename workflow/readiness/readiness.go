// Package readiness measures whether this host can serve a profile, and reports the last result.
//
// [Measurement.Run] checks five points in sandboxes of the profile, and stores a signed result. [Current] reads that
// result and reports whether it still applies: it starts nothing, and takes a millisecond.
package readiness

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// PredicateType is the type of the signed statement in which the result of a readiness measurement is stored.
const PredicateType = "https://github.com/snapfs/snapfs/evidence/ready/v1"

// MaxAge is the age up to which the stored result of a readiness measurement applies, without --max-age. An
// older one counts as not ready.
const MaxAge = 24 * time.Hour

// Conditions are the facts on which a readiness measurement depends, such as kernel, version and policy. A
// stored result under other conditions does not count.
type Conditions struct {
	// Boot and Kernel are those of the host, Version that of snapfs.
	Boot    string `json:"boot"`
	Kernel  string `json:"kernel"`
	Version string `json:"version"`
	// Profile is the path or the name of the profile, "" for none. Policy is the digest of the policy
	// that follows from it.
	Profile   string `json:"profile"`
	Policy    string `json:"policy"`
	Workspace string `json:"workspace"`
}

// ConditionsOf returns the conditions (kernel, policy and so on) for a readiness measurement of sandboxes as
// req describes them, on this host as it is now. version is that of snapfs.
func ConditionsOf(req hostfs.Request, version string) (Conditions, error) {
	boot, err := proc.BootID()
	if err != nil {
		return Conditions{}, err
	}
	p := Conditions{Boot: boot, Kernel: evidence.Kernel(), Version: version, Workspace: strings.ToValidUTF8(req.Workspace, "�")}
	policy := req.Policy
	if policy.Profile != nil {
		p.Profile = strings.ToValidUTF8(policy.Profile.Path, "�")
	}
	policy.Profile, policy.Evidence = nil, false
	policy = policy.Shown() // a digest of values would tell something
	text, err := exactjson.Encode(struct {
		Policy  catalog.Policy
		Backend string
		Frozen  bool
	}{policy, req.Backend, req.Frozen})
	p.Policy = "sha256:" + audit.Digest(text)
	return p, err
}

// A Point is the result of one of the five points of the readiness checklist, which says whether this host
// can run a profile's sandboxes.
type Point struct {
	Name string `json:"name"`
	// Result is "held", "not held" or "untried".
	Result string `json:"result"`
	Why    string `json:"why"`
}

// The values of Point.Result: a point of the readiness checklist held, did not hold, or could not be tested.
const (
	Held    = "held"
	NotHeld = "not held"
	Untried = "untried"
)

// A Result is the result of one readiness measurement, which says whether this host can run a profile's
// sandboxes. It is stored with a signature.
type Result struct {
	Conditions
	Measured time.Time `json:"measured"`
	// Up is the time since the boot, in milliseconds: the clock of the host may be set.
	Up int64 `json:"up"`
	// Backends and Level say how the sandbox was made and isolated.
	Backends string  `json:"backends"`
	Level    string  `json:"level"`
	Points   []Point `json:"points"`
	// Sandbox is the identifier of the sandbox whose record has the runs, and Root the root of that record.
	Sandbox string `json:"sandbox"`
	Root    string `json:"root"`
}

// Ready reports whether every point of the readiness checklist held, so that this host can run the profile's
// sandboxes.
func (r *Result) Ready() bool {
	for _, p := range r.Points {
		if p.Result != Held {
			return false
		}
	}
	return len(r.Points) == len(pointNames)
}

// An Answer says whether this host can run a profile's sandboxes now, by the last readiness measurement.
// [Current] returns it.
type Answer struct {
	Ready bool `json:"ready"`
	// Reason is the name of what is in the way: missing, damaged, boot, kernel, version, policy, age or not-held; "" if
	// the host is ready.
	Reason     string  `json:"reason,omitempty"`
	Why        string  `json:"why"`
	AgeSeconds int64   `json:"age_seconds"`
	Result     *Result `json:"result,omitempty"`
}

// Current reports whether this host can run a profile's sandboxes, by the readiness measurement that is
// stored in the state directory state, unless that is older than maxAge or has other conditions than now. It
// takes no lock and starts nothing.
func Current(state string, now Conditions, maxAge time.Duration) Answer {
	not := func(reason, why string) Answer { return Answer{Reason: reason, Why: why} }
	line, err := os.ReadFile(pathOf(state, now))
	if errors.Is(err, fs.ErrNotExist) {
		return not("missing", "no result for this profile and workspace")
	}
	if err != nil {
		return not("damaged", err.Error())
	}
	r, err := open(state, line)
	if err != nil {
		return not("damaged", "the stored result: "+err.Error())
	}
	age := hostinfo.Uptime() - time.Duration(r.Up)*time.Millisecond
	a := Answer{AgeSeconds: int64(age.Seconds()), Result: r}
	switch {
	case r.Boot != now.Boot:
		a.Reason, a.Why, a.AgeSeconds = "boot", "the host has rebooted since the result", 0
	case r.Kernel != now.Kernel:
		a.Reason, a.Why = "kernel", "the result is of kernel "+r.Kernel+", this host runs "+now.Kernel
	case r.Version != now.Version:
		a.Reason, a.Why = "version", "the result is of snapfs "+r.Version+", this is "+now.Version
	case r.Profile != now.Profile || r.Policy != now.Policy || r.Workspace != now.Workspace:
		a.Reason, a.Why = "policy", "the policy has changed since the result (profile, flags or site's policy)"
	case age < 0 || age > maxAge:
		a.Reason, a.Why = "age", fmt.Sprintf("the result is %v old; the maximum is %v", age.Round(time.Second), maxAge)
	case !r.Ready():
		a.Reason, a.Why = "not-held", "not every point held"
		for _, p := range r.Points {
			if p.Result != Held {
				a.Why = p.Name + ": " + p.Result + ": " + p.Why
				break
			}
		}
	default:
		a.Ready, a.Why = true, fmt.Sprintf("all %d points held %v ago", len(r.Points), age.Round(time.Second))
	}
	return a
}

// pathOf returns the path in the state directory of the stored readiness measurement for the profile and the
// workspace of p.
func pathOf(state string, p Conditions) string {
	sum := sha256.Sum256([]byte(p.Profile + "\x00" + p.Workspace))
	return filepath.Join(evidence.Dir(state), "ready-"+hex.EncodeToString(sum[:12])+".json")
}

// open verifies line, a stored readiness measurement, with the public key of this host in the state directory
// state, and returns its result.
func open(state string, line []byte) (*Result, error) {
	key, err := statement.ReadPublic(filepath.Join(evidence.Dir(state), statement.PublicName))
	if err != nil {
		return nil, err
	}
	s, _, err := statement.Open(line, key)
	if err != nil {
		return nil, err
	}
	if s.PredicateType != PredicateType {
		return nil, errors.New("it is another statement")
	}
	text, err := json.Marshal(s.Predicate)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	return r, json.Unmarshal(text, r)
}

// store signs the result of a readiness measurement with key and stores it in the state directory, where it
// replaces the last one.
func store(state string, key *statement.Key, r *Result) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var predicate map[string]any
	if err := json.Unmarshal(text, &predicate); err != nil {
		return err
	}
	line, _, err := key.Sign(statement.Statement{
		Subject:       []statement.Subject{{Name: statement.Origin(r.Sandbox), Digest: map[string]string{"sha256": r.Root}}},
		PredicateType: PredicateType, Predicate: predicate,
	})
	if err != nil {
		return err
	}
	path := pathOf(state, r.Conditions)
	return errs.With("storing the result", path, catalog.ReplaceFile(path, line, true))
}
