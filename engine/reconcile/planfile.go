package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// fingerprintOf returns the SHA-256 over a plan's target and steps, as JSON with sorted keys. Times and the sandbox
// do not count: two plans with the same effect have the same fingerprint.
func fingerprintOf(p *Plan) string {
	data, err := json.Marshal(struct {
		Format int    `json:"format"`
		Target string `json:"target"`
		Steps  []Step `json:"steps"`
	}{p.Format, exactjson.Escape(p.Target), safeSteps(p.Steps)})
	if err != nil {
		return "" // nothing in it can fail
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// safeSteps returns a plan's steps with escaped paths, so that JSON preserves names that are not UTF-8.
func safeSteps(steps []Step) []Step {
	safe := slices.Clone(steps)
	for i := range safe {
		safe[i].Path, safe[i].From = exactjson.Escape(safe[i].Path), exactjson.Escape(safe[i].From)
	}
	return safe
}

// maxPlans is how many plans the state directory holds; saving one more removes the oldest.
const maxPlans = 50

func (rc *Reconciler) plansDir() string { return filepath.Join(rc.cat.Dir(), "plans") }

// SavePlan writes a plan to a file named by its fingerprint, and removes the oldest beyond maxPlans.
func (rc *Reconciler) SavePlan(p *Plan) error {
	dir := rc.plansDir()
	fail := func(err error) error {
		return errs.With("saving the plan", dir, err)
	}
	saved := *p
	saved.Target, saved.Steps = exactjson.Escape(p.Target), safeSteps(p.Steps)
	data, err := json.MarshalIndent(saved, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return fail(err)
	}
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return fail(err)
	}
	_, err = tmp.Write(append(data, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(dir, p.Fingerprint+".json"))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fail(err)
	}
	return rc.prunePlans()
}

// prunePlans removes all saved plans but the newest maxPlans.
func (rc *Reconciler) prunePlans() error {
	list, err := os.ReadDir(rc.plansDir())
	if err != nil || len(list) <= maxPlans {
		return err
	}
	type aged struct {
		name string
		info fs.FileInfo
	}
	var all []aged
	for _, entry := range list {
		if info, err := entry.Info(); err == nil {
			all = append(all, aged{entry.Name(), info})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	for _, a := range all[min(maxPlans, len(all)):] {
		if err := os.Remove(filepath.Join(rc.plansDir(), a.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.With("removing an old plan", a.name, err)
		}
	}
	return nil
}

// checkFingerprint returns an error about sandbox name unless reviewed is "" or 12 or more digits of a fingerprint.
func checkFingerprint(name, reviewed string) error {
	if reviewed == "" || len(reviewed) >= 12 && strings.Trim(reviewed, "0123456789abcdef") == "" {
		return nil
	}
	return &errs.Error{
		Op: "promoting", Path: name, Kind: errs.ErrNotFound,
		Err: fmt.Errorf("%q is not a plan fingerprint (12 or more hexadecimal digits)", reviewed), Hints: []string{"snapfs plan " + name},
	}
}

// CheckPlan returns ErrDrifted, with the differing steps, unless plan p is the one that the user reviewed. reviewed
// is its fingerprint or at least the first 12 characters.
func (rc *Reconciler) CheckPlan(p *Plan, reviewed string) error {
	if strings.HasPrefix(p.Fingerprint, reviewed) {
		return nil
	}
	refuse := func(kind error, why error) error {
		return &errs.Error{Op: "promoting", Path: p.Sandbox, Kind: kind, Err: why, Hints: []string{"snapfs plan " + p.Sandbox}}
	}
	found, err := filepath.Glob(filepath.Join(rc.plansDir(), reviewed+"*.json"))
	if err != nil || len(found) != 1 {
		return refuse(errs.ErrDrifted, errors.New("the promotion differs from the reviewed plan, which is no longer on disk"))
	}
	var old Plan
	data, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err != nil {
		return refuse(errs.ErrCorrupt, err)
	}
	why := []error{errors.New("the promotion differs from the reviewed plan")}
	lines := planDifference(&old, p)
	for _, line := range lines[:min(len(lines), 20)] {
		why = append(why, errors.New(line))
	}
	if more := len(lines) - 20; more > 0 {
		why = append(why, fmt.Errorf("and %d more", more))
	}
	return refuse(errs.ErrDrifted, errors.Join(why...))
}

// planDifference lists how the steps of the plan now differ from those of old, one line per path.
func planDifference(old, now *Plan) (lines []string) {
	if was := exactjson.Unescape(old.Target); was != now.Target {
		lines = append(lines, "the target was "+pathlist.Printable(was)+", and is "+pathlist.Printable(now.Target))
	}
	was := map[string]string{}
	for _, s := range old.Steps {
		was[s.Path] = mustText(s)
	}
	for _, s := range safeSteps(now.Steps) {
		before, there := was[s.Path]
		delete(was, s.Path)
		switch {
		case !there:
			lines = append(lines, pathlist.Printable(exactjson.Unescape(s.Path))+": not in the reviewed plan")
		case before != mustText(s):
			lines = append(lines, pathlist.Printable(exactjson.Unescape(s.Path))+": "+stepDifference(before, s))
		}
	}
	for path := range was {
		lines = append(lines, pathlist.Printable(exactjson.Unescape(path))+": no longer changed")
	}
	slices.Sort(lines)
	return lines
}

// stepDifference says in words which side changed since a plan was made, in which a path's step was before, in JSON.
func stepDifference(before string, now Step) string {
	var old Step
	if json.Unmarshal([]byte(before), &old) != nil {
		return "differs"
	}
	if mustText(old.Expect) != mustText(now.Expect) {
		return "the real tree has changed there"
	}
	return "the sandbox has changed it again"
}

// mustText returns a plan's step, or a state in it, as JSON text for comparison.
func mustText(v any) string {
	data, _ := json.Marshal(v) // such a value always encodes
	return string(data)
}
