package bundle

import (
	"slices"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// Counted is the type of the record in an evidence log that says how often the sandbox's network proxy
// decided on each destination.
const Counted = "snapfs.network.counted"

// Summary returns an overview of the records of an evidence log: commands, promotions, limits and
// destinations. The signed end statement contains it, and Verify computes it again to compare.
func Summary(records []audit.Record) map[string]any {
	commands, promotions, limits, destinations := []any{}, []any{}, []any{}, []any{}
	var diff any
	var checks []any
	starts := map[string]int64{}
	for _, r := range records {
		switch r.Type {
		case events.CommandStarted:
			starts[text(r.Data, "run")] = r.Seq
		case events.CommandEnded:
			if began, ok := starts[text(r.Data, "run")]; ok {
				commands = append(commands, pick(r.Data, map[string]any{"started": began, "ended": r.Seq}, "status", "milliseconds", "cpu_milliseconds", "memory_bytes"))
			}
		case events.CheckEnded:
			checks = append(checks, pick(r.Data, map[string]any{"record": r.Seq}, "name", "reason", "status", "output"))
		case events.LimitReached:
			limits = append(limits, pick(r.Data, map[string]any{"record": r.Seq}, "limit", "value"))
		case events.ChangesPromoted, events.PromotionUndone, events.PromotionRedone:
			promotions = append(promotions, pick(r.Data, map[string]any{"record": r.Seq, "type": r.Type}, "promotion", "plan", "target", "changes"))
		case Counted:
			destinations = slices.Clone(list(r.Data, "destinations"))
		case audit.DiffRecorded:
			diff = pick(r.Data, map[string]any{"record": r.Seq}, "root", "entries")
		}
	}
	sum := map[string]any{"commands": commands, "promotions": promotions, "limits": limits, "destinations": destinations}
	if checks != nil {
		sum["checks"] = checks
	}
	if diff != nil {
		sum["diff"] = diff
	}
	return sum
}

// pick copies those of fields that from, the data of an evidence record, has to the object into, and returns
// into.
func pick(from, into map[string]any, fields ...string) map[string]any {
	for _, f := range fields {
		if v, ok := from[f]; ok {
			into[f] = v
		}
	}
	return into
}

// text returns the named field in the data of an evidence record if it is a string, else "".
func text(data map[string]any, field string) string {
	s, _ := data[field].(string)
	return s
}

// list returns the named field in the data of an evidence record if it is a list, else nil.
func list(data map[string]any, field string) []any {
	l, _ := data[field].([]any)
	return l
}
