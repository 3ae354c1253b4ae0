package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
)

// A refusal is what becomes of a rule that refuses something: the event of it, the error that the program or the client
// gets, and where docs/profile.md says so, in the text of the section or of the key. None is why nothing is refused.
type refusal struct{ event, err, none string }

// refusals has the refusal of each key of the sections with rules.
func refusals() map[string]refusal {
	access, network := events.AccessRefused, events.NetworkRefused
	none := func(why string) refusal { return refusal{none: why} }
	program, write := refusal{event: access, err: "EACCES"}, refusal{event: access, err: "EACCES"}
	request := refusal{event: network, err: "status 403"}
	return map[string]refusal{
		"[tools] allow": program, "[tools] deny": program,
		"[tools] hook": {event: "is an event", err: "shows the reason"}, "[tools] mcp": {event: "is an event", err: "fails with the reason"},
		"[data] readable": write, "[data] recorded": {event: events.FileRead, err: "EIO"}, "[data] writable": write, "[data] read-only": {event: access, err: "EROFS"},
		"[data] secret": {event: network, err: "status 403"}, "[data] private": {event: network, err: "status 403"},
		"[secrets.NAME] env": none("a source"), "[secrets.NAME] file": none("a source"), "[secrets.NAME] field": none("a source"), "[secrets.NAME] command": none("a source"),
		"[secrets.NAME] age-identity": none("a source"), "[secrets.NAME] keyring": none("a source"),
		"[secrets.NAME] aws": {event: "each an event", err: "refused"}, "[secrets.NAME] hosts": request, "[secrets.NAME] methods": request, "[secrets.NAME] paths": request,
		"[secrets.NAME] as": none("a name"), "[secrets.NAME] base-url": {event: "each an event", err: "refused"}, "[secrets.NAME] body": none("an addition"),
		"[budget] requests": {event: network, err: "429"}, "[budget] bytes-sent": {event: network, err: "429"}, "[budget] tokens": {event: network, err: "429"},
		"[budget] input-tokens": {event: network, err: "429"}, "[budget] output-tokens": {event: network, err: "429"}, "[budget] money": {event: network, err: "429"},
		"[budget] hosts":      none("an addition"),
		"[prices.NAME] input": none("a price"), "[prices.NAME] cached": none("a price"), "[prices.NAME] cache-write": none("a price"), "[prices.NAME] output": none("a price"),
		"[sandbox] net": {event: network, err: "connection is refused"}, "[sandbox] registries": none("an addition"), "[sandbox] ask": {event: events.NetworkAsked, err: "refuses"},
		"[sandbox] expose": none("an exception"), "[sandbox] hide": {event: "opening one is an event", err: "empty"}, "[sandbox] env": {event: "No event", err: "besides those that always pass"},
		"[sandbox] evidence": none("a record"), "[sandbox] keep-evidence": none("a record"), "[sandbox] snapshots": none("a time"), "[sandbox] keep-snapshots": none("a bound"),
		"[sandbox] keep-snapshots-for": none("a bound"), "[sandbox] keep-snapshots-size": none("a bound"),
		"[result] only": {event: "no\nevent", err: "lists"},
	}
}

// TestEveryRuleHasAnEventAnErrorAndALine takes the rules from the grammar, and looks for both in docs/profile.md, in the
// part about the rule's section.
func TestEveryRuleHasAnEventAnErrorAndALine(t *testing.T) {
	text, err := os.ReadFile("../../docs/profile.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## `")[1:] {
		header, _, _ := strings.Cut(part, "`")
		sections[header] = strings.Join(strings.Fields(part), " ")
	}
	want := refusals()
	for _, s := range Grammar() {
		if !slices.Contains([]string{"[limits]", "[tools]", "[data]", "[secrets.NAME]", "[budget]", "[prices.NAME]", "[sandbox]", "[result]"}, s.Header) {
			continue // what it says refuses nothing
		}
		part, ok := sections[s.Header]
		if !ok {
			t.Errorf("docs/profile.md has no section %s", s.Header)
		}
		for _, k := range s.Keys {
			if !strings.Contains(part, "| `"+k.Name+"` |") {
				t.Errorf("docs/profile.md has no line of %s %s", s.Header, k.Name)
			}
			r, ok := want[s.Header+" "+k.Name]
			if s.Header == "[limits]" {
				r, ok = refusal{event: events.LimitReached, err: "snapfs names it"}, true
			}
			delete(want, s.Header+" "+k.Name)
			switch {
			case !ok:
				t.Errorf("%s %s: nobody has said what its refusal is", s.Header, k.Name)
			case r.none != "":
			case !strings.Contains(part, strings.ReplaceAll(r.event, "\n", " ")) || !strings.Contains(part, r.err):
				t.Errorf("%s %s: docs/profile.md does not have both %q and %q", s.Header, k.Name, r.event, r.err)
			}
		}
	}
	for key := range want {
		t.Errorf("%s is no key", key)
	}
}
