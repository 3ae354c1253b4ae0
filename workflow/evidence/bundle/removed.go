package bundle

import (
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// Removed is the fault in the verdict on completeness of an evidence bundle from which older records were removed under
// a retention rule, as the host has signed. The verdict is "yes" then, if nothing else is missing.
const Removed = "removed"

// seqAt returns the number that the record at this place in the bundle's list must have.
func (c *checked) seqAt(place int) int64 {
	if c.gap != nil && place >= audit.Opening {
		return c.gap.Next() + int64(place) - audit.Opening
	}
	return int64(place)
}

// record returns the record with this number in the evidence log; false if it was removed, or there is none.
func (c *checked) record(seq int64) (audit.Record, bool) {
	place := seq
	if c.gap != nil && seq >= audit.Opening {
		if place = seq - c.gap.Next() + audit.Opening; place < audit.Opening {
			return audit.Record{}, false
		}
	}
	if place < 0 || place >= int64(len(c.records)) {
		return audit.Record{}, false
	}
	return c.records[place], true
}

// checkRemovals returns a fault unless each statement in the evidence log about removed records is signed by the
// bundle's key and about this log.
func (c *checked) checkRemovals() *fault {
	for _, r := range c.records {
		if r.Type != audit.RecordsRemoved {
			continue
		}
		s, _, err := statement.Open(r.Statement(), c.Key)
		if err != nil {
			return faultf("statement", "the statement of removed records in record %d: %v", r.Seq, err)
		}
		log, _ := s.Predicate["log"].(map[string]any)
		root, _ := log["root"].(string)
		size, _ := log["size"].(float64)
		switch {
		case s.PredicateType != statement.RemovalType:
			return faultf("statement", "the statement in record %d has another type", r.Seq)
		case text(s.Predicate, "sandbox") != c.Sandbox:
			return faultf("session", "the statement of removed records in record %d is of another sandbox", r.Seq)
		case int64(size) < 1 || int64(size) > r.Seq:
			return faultf("statement", "the statement of removed records in record %d is of %d records", r.Seq, int64(size))
		}
		if got, err := c.tree.Root(int64(size)); err != nil || fmt.Sprintf("%x", got[:]) != root {
			return faultf("statement", "the statement of removed records in record %d is of other records", r.Seq)
		}
		c.removal = s.Predicate
	}
	return nil
}

// completeness returns the verdict whether the bundle has everything from the sandbox's creation to its end. If records
// were removed under a rule, the verdict names them: they are missing, as the host has signed.
func (c *checked) completeness() Verdict {
	f := c.complete()
	if f != nil || c.gap == nil {
		return f.verdict(Completeness, "the log runs from the sandbox's creation to the end statement")
	}
	by, _ := c.removal["by"].(map[string]any)
	return Verdict{Completeness, "yes", Removed, fmt.Sprintf(
		"records %d to %d were removed under the rule %s, by %s at %s, as signed; the rest runs from the sandbox's creation to the end statement",
		c.gap.First, c.gap.Last, text(c.removal, "rule"), text(by, "user"), text(c.removal, "time"))}
}

// since returns the part of sum, a summary of records, that is about the records from number first on. counted is set
// if these have the numbers of the network's destinations.
func since(sum map[string]any, first int64, counted bool) map[string]any {
	out := map[string]any{}
	for _, name := range []string{"commands", "checks", "limits", "promotions"} {
		all := []any{}
		for _, v := range list(sum, name) {
			if one, ok := v.(map[string]any); ok && earliest(one) >= first {
				all = append(all, v)
			}
		}
		out[name] = all
	}
	if counted {
		out["destinations"] = sum["destinations"]
	}
	if diff, ok := sum["diff"].(map[string]any); ok && earliest(diff) >= first {
		out["diff"] = diff
	}
	return out
}

// earliest returns the smallest number of a record that one, an entry of a summary, names.
func earliest(one map[string]any) int64 {
	first := int64(1) << 53
	for _, field := range []string{"started", "ended", "record"} {
		switch n := one[field].(type) {
		case float64:
			first = min(first, int64(n))
		case int64:
			first = min(first, n)
		}
	}
	return first
}

// sameSummary reports whether said, the summary in the signed end statement, is that of the first size records of the
// log. Of removed records it has no part to compare.
func (c *checked) sameSummary(said any, size int64) bool {
	var records []audit.Record
	counted := false
	for _, r := range c.records {
		if r.Seq < size {
			records = append(records, r)
			counted = counted || r.Type == Counted
		}
	}
	own := any(Summary(records))
	if theirs, ok := said.(map[string]any); ok && c.gap != nil {
		own, said = since(Summary(records), c.gap.Next(), counted), since(theirs, c.gap.Next(), counted)
	}
	sum, err := audit.Canonical(own)
	other, oerr := audit.Canonical(said)
	return err == nil && oerr == nil && string(sum) == string(other)
}

// RemovalOf describes the removal of the records before number next from an evidence log, for its signed statement.
// lines and records are those of the log, without the records of an earlier removal, before. keep are sizes of
// the log for which others hold its root.
func RemovalOf(lines [][]byte, records []audit.Record, before *audit.Removed, next int64, keep []int64) (*audit.Removed, *audit.Tree, error) {
	tree, err := audit.TreeWithout(lines, before)
	if err != nil {
		return nil, nil, err
	}
	r := &audit.Removed{Running: []string{}}
	c := &checked{Bundle: &Bundle{}, gap: before}
	for i, one := range records {
		if one.Seq >= next {
			break
		}
		c.records, r.Digest = append(c.records, one), audit.Digest(lines[i])
	}
	running, torn := c.running()
	for run := range running {
		r.Running = append(r.Running, run)
	}
	slices.Sort(r.Running)
	r.Torn = torn >= 0
	v, tests := c.policyOf()
	if r.Tests = int64(tests); v.Fault == "isolation" || v.Fault == "network" {
		r.Fault = v.Fault
	}
	if before != nil {
		keep = append(slices.Clone(before.Sizes), keep...)
	}
	slices.Sort(keep)
	return r, tree, tree.Remove(r, next, slices.Compact(keep))
}

// hasSize reports whether the log's root at this size can be computed, which is not possible within most of the removed
// records.
func (c *checked) hasSize(size int64) bool {
	_, err := c.tree.Root(size)
	return err == nil
}

// running returns the commands that have started and not ended, each with the number of its
// start, and the number of the first record that says that a line was cut off, -1 if there is none.
func (c *checked) running() (open map[string]int64, torn int64) {
	open, torn = map[string]int64{}, -1
	if c.gap != nil {
		for _, run := range c.gap.Running {
			open[run] = c.gap.Last
		}
		if c.gap.Torn {
			torn = c.gap.Last
		}
	}
	for _, r := range c.records {
		switch {
		case r.Type == audit.Torn && torn < 0:
			torn = r.Seq
		case r.Type == events.CommandStarted:
			open[text(r.Data, "run")] = r.Seq
		case r.Type == events.CommandEnded, r.Type == events.CommandRefused:
			delete(open, text(r.Data, "run"))
		}
	}
	return open, torn
}
