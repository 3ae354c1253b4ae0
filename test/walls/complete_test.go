package walls

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/prove"
)

// For each probe of the doctor's there is a build in which it has to notice something,
// for root and for an ordinary user, or the reason why there is none.
func TestEveryProbeHasABuildThatTurnsIt(t *testing.T) {
	for _, w := range []who{root, user} {
		has := map[string]bool{}
		for _, wall := range table() {
			for _, name := range wall.falls {
				has[name] = has[name] || wall.who == everybody || wall.who == w
			}
		}
		for _, x := range excuses {
			for _, name := range x.lines {
				has[name] = has[name] || x.who == w
			}
		}
		for _, p := range prove.List() {
			if !has[p.Name] && (w != user || notHere[p.Name] == "") {
				t.Errorf("%s, for %s: no build is without it", p.Name, names[w])
			}
		}
	}
}

// Each word of the table is one: a probe, or a part that a place leaves out; and each of
// those parts is left out by some build.
func TestEveryWordOfTheTableMeansSomething(t *testing.T) {
	probes := map[string]bool{}
	for _, p := range prove.List() {
		probes[p.Name] = true
	}
	lines := slices.Concat(slow, apart, slices.Collect(maps.Keys(notHere)), slices.Collect(maps.Keys(asked)))
	used := map[string]bool{}
	for _, w := range table() {
		lines = append(lines, slices.Concat(w.falls, w.also)...)
		for part := range strings.FieldsSeq(w.parts) {
			kind, _, _ := strings.Cut(part, ":") // of a call, a capability
			used[kind] = true
		}
		if len(w.also) > 0 && w.why == "" {
			t.Errorf("%s: other walls fall with it, and nobody says why", w.parts)
		}
	}
	for _, x := range excuses {
		lines = append(lines, x.lines...)
	}
	for _, name := range lines {
		if !probes[name] {
			t.Errorf("%s: the table names it, and the doctor has no such probe", name)
		}
	}
	made := map[string]bool{}
	for _, part := range ratesByName {
		made[part] = true
	}
	for _, p := range places {
		for _, found := range regexp.MustCompile(`(?:isIn|isOut|extra)\("([a-z0-9-]+)"\)`).FindAllStringSubmatch(p.becomes, -1) {
			made[found[1]] = true
		}
	}
	for part := range used {
		if !made[part] {
			t.Errorf("%s: the table leaves it out, and no place makes it", part)
		}
	}
	for part := range made {
		if !used[part] {
			t.Errorf("%s: a place can leave it out, and no build does", part)
		}
	}
}

// ratesByName are the parts that limits/settings.go leaves out by the names that they have.
var ratesByName = []string{"io-read", "io-write", "io-read-ops", "io-write-ops"}
