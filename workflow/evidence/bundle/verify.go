package bundle

import (
	"crypto/ed25519"
	"fmt"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"golang.org/x/mod/sumdb/tlog"
)

// The names of the verdicts, answers to one question each, on an evidence bundle, in the order of a report.
const (
	Integrity    = "integrity"
	Signer       = "signer"
	Completeness = "completeness"
	Policy       = "policy"
	Gate         = "gate"
)

// Names of the faults with which a repetition of the recorded checks (the gate) ends. Only a host that has
// the recorded state of the sandbox can repeat them.
const (
	NoBase      = "no-base"
	OtherStatus = "status"
)

// A Verdict answers one question about an evidence bundle, such as whether it was changed after it was
// signed.
type Verdict struct {
	Name string `json:"name"`
	// Result is "yes", "no", or "not run".
	Result string `json:"result"`
	// Fault names the reason of a "no", and of a "not run" that was asked for; "" with another result, but for
	// [Removed].
	Fault string `json:"fault,omitempty"`
	Why   string `json:"why"`
}

// A Report is the result of verifying an evidence bundle: its sandbox and key, and the verdicts.
type Report struct {
	Sandbox string `json:"sandbox,omitempty"`
	Records int64  `json:"records"`
	// Root is the root of the log, in hexadecimal digits.
	Root     string    `json:"root,omitempty"`
	Key      string    `json:"key,omitempty"`
	Verdicts []Verdict `json:"verdicts"`
}

// Options say which key the reader of an evidence bundle trusts, and with which earlier bundle the bundle
// must agree.
type Options struct {
	// Key is the key that the reader trusts, or nil.
	Key ed25519.PublicKey
	// Earlier is an earlier bundle of the same sandbox, or nil. The log must continue its log.
	Earlier []byte
	// Witnesses are the other parties that the reader trusts, of which at least Least (0: each) must have cosigned the
	// log up to its end.
	Witnesses []statement.Witness
	Least     int
}

// A fault is a reason to reject a bundle, the evidence of one sandbox: a name for programs, and a text for
// people.
type fault struct{ name, why string }

func faultf(name, format string, values ...any) *fault {
	return &fault{name, fmt.Sprintf(format, values...)}
}

func (f *fault) verdict(name, good string) Verdict {
	if f == nil {
		return Verdict{name, "yes", "", good}
	}
	return Verdict{name, "no", f.name, f.why}
}

// A checked is a bundle, the evidence of one sandbox, while it is verified, with its parts decoded.
type checked struct {
	*Bundle
	records    []audit.Record
	tree       *audit.Tree
	statements []statement.Statement
	sizes      []int64 // of the log, in the statements
	checkpoint statement.Checkpoint
	gap        *audit.Removed // the records that were removed, or nil
	removal    map[string]any // the statement about it
	cosigners  []cosigner
}

// Verify returns the verdicts on text, the file of an evidence bundle. If the file was changed after it was
// signed, Verify does not examine the other questions.
func Verify(text []byte, o Options) Report {
	c, f := check(text)
	if f == nil && o.Earlier != nil {
		f = c.continues(o.Earlier)
	}
	r := Report{}
	if c != nil && c.Bundle != nil {
		r.Sandbox, r.Records, r.Key = c.Sandbox, int64(len(c.Records)), statement.KeyID(c.Key)
	}
	if f != nil {
		r.Verdicts = []Verdict{f.verdict(Integrity, "")}
		for _, name := range []string{Signer, Completeness, Policy, Gate} {
			r.Verdicts = append(r.Verdicts, Verdict{name, "not run", "", "the bundle is not as it was signed"})
		}
		return r
	}
	r.Root = fmt.Sprintf("%x", c.checkpoint.Root[:])
	r.Verdicts = []Verdict{
		(*fault)(nil).verdict(Integrity, fmt.Sprintf("%d records, %d statements and the checkpoint are as they were signed", len(c.records), len(c.statements))),
		c.signed(o),
		c.completeness(),
		c.policy(),
		{Gate, "not run", "", "use --reproduce to run the checks again"},
	}
	return r
}

// check verifies the integrity of text, an evidence bundle: that it is exactly as it was signed. It returns
// the decoded bundle, or the first fault.
func check(text []byte) (*checked, *fault) {
	b, err := Decode(text)
	if err != nil {
		return nil, faultf("form", "the file is no whole bundle: %v", err)
	}
	c := &checked{Bundle: b}
	for _, step := range []func() *fault{c.checkRecords, c.checkClock, c.checkCheckpoint, c.checkRemovals, c.checkStatements, c.checkManifests, c.checkCosigned} {
		if f := step(); f != nil {
			return c, f
		}
	}
	return c, nil
}

// checkRecords checks the form and order of the records in the evidence bundle, and that each has the digest
// of the one before.
func (c *checked) checkRecords() *fault {
	var tree *audit.Tree
	var treeErr error
	var built sync.WaitGroup
	built.Go(func() { tree, treeErr = audit.TreeOf(c.Records) })
	defer built.Wait()
	records, bad := audit.ParseAll(c.Records)
	if bad >= 0 {
		// The lines before it may have a fault, too: the first one counts.
		if f := c.checkChain(records[:bad]); f != nil {
			return f
		}
		return faultf("record", "record %d is no record", bad)
	}
	if f := c.checkChain(records); f != nil {
		return f
	}
	built.Wait()
	if c.gap != nil {
		tree, treeErr = audit.TreeWithout(c.Records, c.gap)
	}
	if treeErr != nil {
		return faultf("record", "computing the tree: %v", treeErr)
	}
	c.records, c.tree = records, tree
	return nil
}

// checkChain returns a fault unless each record of the evidence log is about the bundle's sandbox, and has
// its place as its number and the digest of the record before.
func (c *checked) checkChain(records []audit.Record) *fault {
	var err error
	if c.gap, err = audit.GapIn(records); err != nil {
		return faultf("dropped", "%v", err)
	}
	bad := audit.ChainedWithout(c.Sandbox, c.Records, records, c.gap)
	if bad < 0 {
		return nil
	}
	switch r, seq := records[bad], c.seqAt(bad); {
	case r.Sandbox != c.Sandbox:
		return faultf("session", "record %d is of another sandbox", seq)
	case r.Seq != seq:
		return faultf("order", "record %d has the number %d: records are missing, doubled or out of order", seq, r.Seq)
	default:
		return faultf("chain", "record %d does not follow from the one before: one of them was changed", seq)
	}
}

// maxSkew is how far the host's clock may differ from the time since boot between two records of an evidence
// log before the clock counts as set.
const maxSkew = time.Minute

// checkClock returns a fault if the time since boot in the records of the evidence log shows that somebody
// has set the host's clock between two records.
func (c *checked) checkClock() *fault {
	var before time.Time
	for i, r := range c.records {
		at, err := time.Parse(time.RFC3339Nano, r.Time)
		if err != nil {
			return faultf("record", "record %d has no time", i)
		}
		if i > 0 {
			last := c.records[i-1]
			passed := at.Sub(before)
			up := time.Duration(r.Up-last.Up) * time.Millisecond
			switch same := r.Boot == last.Boot; {
			case same && up < 0, !same && passed < -maxSkew:
				return faultf("clock", "record %d is older than record %d", i, i-1)
			case same && (passed-up).Abs() > maxSkew:
				return faultf("clock", "the clock was set between records %d and %d: it went %v in %v", i-1, i, passed, up)
			}
		}
		before = at
	}
	return nil
}

// checkCheckpoint returns a fault unless the signed checkpoint of the evidence bundle has the size and the
// root hash of the bundle's log.
func (c *checked) checkCheckpoint() *fault {
	point, err := statement.OpenCheckpoint(c.Checkpoint, c.Sandbox, c.Key)
	if err != nil {
		return faultf("checkpoint", "%v", err)
	}
	c.checkpoint = point
	if point.Size != c.tree.Size() {
		return faultf("truncated", "the checkpoint is of %d records, and there are %d", point.Size, c.tree.Size())
	}
	return c.hasRoot("checkpoint", point.Size, point.Root)
}

// hasRoot returns a fault unless the first n records of the evidence bundle have the Merkle root want. what
// names the signed object that says so, such as the checkpoint, for the fault.
func (c *checked) hasRoot(what string, n int64, want tlog.Hash) *fault {
	if n < 1 || n > c.tree.Size() {
		return faultf("truncated", "the %s is of %d records, and there are %d", what, n, c.tree.Size())
	}
	got, err := c.tree.Root(n)
	if err != nil || got != want {
		return faultf(what, "the %s is of other records", what)
	}
	return nil
}

// checkStatements returns a fault unless the statements about the sandbox's start and end are signed by the
// bundle's key, and each is about the evidence log of the bundle.
func (c *checked) checkStatements() *fault {
	kinds := []struct{ predicate, record string }{{statement.StartType, audit.Began}, {statement.EndType, audit.Ended}}
	for i, line := range c.Statements {
		s, digest, err := statement.Open(line, c.Key)
		if err != nil {
			return faultf("statement", "statement %d: %v", i, err)
		}
		log, _ := s.Predicate["log"].(map[string]any)
		size, _ := log["size"].(float64)
		root, _ := log["root"].(string)
		n := int64(size)
		switch {
		case s.PredicateType != kinds[i].predicate:
			return faultf("statement", "statement %d has another type", i)
		case text(s.Predicate, "sandbox") != c.Sandbox:
			return faultf("session", "statement %d is of another sandbox", i)
		case n < 1 || n >= c.tree.Size():
			return faultf("truncated", "statement %d is of %d records, and the log has %d", i, n, c.tree.Size())
		}
		if got, err := c.tree.Root(n); err != nil || fmt.Sprintf("%x", got[:]) != root {
			return faultf("statement", "statement %d is of other records", i)
		}
		if r, _ := c.record(n); r.Type != kinds[i].record || text(r.Data, "statement") != digest {
			return faultf("statement", "record %d does not name statement %d", n, i)
		}
		c.statements, c.sizes = append(c.statements, s), append(c.sizes, n)
	}
	if len(c.statements) == 2 {
		if !c.sameSummary(c.statements[1].Predicate["summary"], c.sizes[1]) {
			return faultf("statement", "the end statement says other than the log")
		}
	}
	return nil
}

// checkManifests returns a fault unless each manifest (list of changed files) in the evidence bundle is one
// whose root hash a record of the log names.
func (c *checked) checkManifests() *fault {
	roots := c.roots()
	if len(c.Manifests) > len(roots) {
		return faultf("manifest", "there are more manifests than records of them")
	}
	for i, m := range c.Manifests {
		tree, err := audit.TreeOf(m)
		if err != nil {
			return faultf("manifest", "manifest %d: %v", i, err)
		}
		root, err := tree.Root(tree.Size())
		if err != nil || fmt.Sprintf("%x", root[:]) != roots[i] {
			return faultf("manifest", "manifest %d is not the one that was recorded", i)
		}
	}
	return nil
}

// roots returns the root hashes of the manifests (lists of changed files) that the evidence bundle's records
// name, each once, in the order of the records.
func (c *checked) roots() []string { return Roots(c.records) }

// Roots returns the root hashes of the manifests (lists of changed files) that records of an evidence log
// name, each once, in their order.
func Roots(records []audit.Record) (all []string) {
	seen := map[string]bool{}
	for _, r := range records {
		if root := text(r.Data, "root"); r.Type == audit.DiffRecorded && !seen[root] {
			seen[root] = true
			all = append(all, root)
		}
	}
	return all
}

// signer returns a fault unless the evidence bundle is signed by trusted, the key that the reader trusts. The
// key in a bundle alone proves nothing about who signed it.
func (c *checked) signer(trusted ed25519.PublicKey) *fault {
	switch {
	case trusted == nil:
		return faultf("unknown-key", "no key was given to compare with: signed by %s", statement.KeyID(c.Key))
	case !trusted.Equal(c.Key):
		return faultf("other-key", "signed by %s; the key that you trust is %s", statement.KeyID(c.Key), statement.KeyID(trusted))
	}
	return nil
}

// complete returns a fault unless the evidence log has everything from the creation of the sandbox to its end
// statement.
func (c *checked) complete() *fault {
	if c.records[0].Type != events.SandboxCreated || c.sizes[0] != 1 {
		return faultf("no-start", "the log does not begin with the sandbox's creation and the start statement")
	}
	end := c.tree.Size()
	if len(c.sizes) == 2 {
		end = c.sizes[1]
	}
	for _, r := range c.records {
		if r.Seq > end && r.Type != events.SandboxRemoved && r.Type != audit.RecordsRemoved {
			return faultf("after-end", "record %d (%s) is after the end statement", r.Seq, r.Type)
		}
	}
	open, torn := c.running()
	if torn >= 0 {
		return faultf("torn", "record %d: the record before it was cut off, as its writer was killed or lost power", torn)
	}
	if len(c.statements) < 2 {
		return faultf("no-end", "there is no end statement: the record was exported before its end, or its end is missing")
	}
	if len(open) > 0 {
		first := end
		for _, seq := range open {
			first = min(first, seq)
		}
		return faultf("no-result", "the command of record %d has no recorded end", first)
	}
	if missing := len(c.roots()) - len(c.Manifests); missing > 0 {
		return faultf("no-manifest", "%d of the recorded manifests are missing", missing)
	}
	return nil
}

// policy returns the verdict whether the events that the evidence log records agree with the sandbox's
// policy, which is in the first record.
func (c *checked) policy() Verdict {
	v, _ := c.policyOf()
	return v
}

// policyOf returns the verdict of [checked.policy], and the number of recorded self-tests up to a breach.
func (c *checked) policyOf() (Verdict, int) {
	settings, _ := c.records[0].Data["policy"].(map[string]any)
	tests := 0
	if c.gap != nil {
		if tests = int(c.gap.Tests); c.gap.Fault == "isolation" || c.gap.Fault == "network" {
			return faultf(c.gap.Fault, "a record that was removed since was against the policy").verdict(Policy, ""), tests
		}
	}
	for _, r := range c.records {
		switch r.Type {
		case events.SelfTested:
			if tests++; len(list(r.Data, "crossed")) > 0 {
				return faultf("isolation", "record %d: a self-test crossed %v", r.Seq, r.Data["crossed"]).verdict(Policy, ""), tests
			}
		case events.NetworkAllowed:
			if text(settings, "network") == "none" {
				return faultf("network", "record %d: a connection, and the policy has no network", r.Seq).verdict(Policy, ""), tests
			}
		}
	}
	return c.measured(settings, tests), tests
}

// measured returns the verdict on the policy, of which nothing recorded is a breach, by the number of self-tests.
func (c *checked) measured(settings map[string]any, tests int) Verdict {
	if want, _ := settings["prove"].(bool); want && tests == 0 {
		return faultf("not-measured", "the policy requires a self-test, and none is recorded").verdict(Policy, "")
	}
	if tests == 0 {
		return (*fault)(nil).verdict(Policy, "nothing recorded is against the policy; isolation was not measured")
	}
	return (*fault)(nil).verdict(Policy, fmt.Sprintf("nothing recorded is against the policy; %d self-tests held", tests))
}

// continues returns a fault unless the log in the evidence bundle continues the log in text, an earlier
// bundle of the sandbox, with nothing replaced.
func (c *checked) continues(text []byte) *fault {
	earlier, f := check(text)
	switch {
	case f != nil:
		return faultf("earlier", "the earlier bundle itself: %s", f.why)
	case earlier.Sandbox != c.Sandbox || !earlier.Key.Equal(c.Key):
		return faultf("earlier", "the earlier bundle is of another sandbox or key")
	case c.gap != nil && !c.hasSize(earlier.checkpoint.Size):
		return faultf("earlier", "the earlier bundle ends within the removed records, and its root is not among those that remain")
	case earlier.tree.Size() > c.tree.Size() || c.tree.Continues(earlier.checkpoint.Size, earlier.checkpoint.Root) != nil:
		return faultf("rewritten", "the log does not continue that of the earlier bundle: records were replaced")
	}
	return nil
}
