package learn

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/internal/dpkg"
)

// A Difference is one value of a setting, such as a network rule, that only one of two profiles has: the
// learned one or the given one. [Diff] returns it.
type Difference struct {
	// Setting is sandbox.net, tools.allow or data.writable.
	Setting string `json:"setting"`
	Value   string `json:"value"`
	// Used is set if a command used what the profile does not allow, and not if the profile allows more.
	Used bool `json:"used"`
}

// everything stands in [Diff] for a setting of a profile that restricts nothing, such as the host's network.
const everything = "everything"

// Diff compares used, the profile learned from a command, with allowed, an existing profile. It returns the
// rules that the command needs and allowed lacks, and those that allowed has and the command did not need.
func Diff(used, allowed *policy.Sandbox) []Difference {
	differences := []Difference{}
	add := func(setting string, u, a []string, covers func(a, u string) bool) {
		for _, one := range u {
			if !slices.ContainsFunc(a, func(rule string) bool { return rule == everything || covers(rule, one) }) {
				differences = append(differences, Difference{setting, one, true})
			}
		}
		for _, rule := range a {
			if !slices.ContainsFunc(u, func(one string) bool { return one == everything || rule != everything && covers(rule, one) }) {
				differences = append(differences, Difference{setting, rule, false})
			}
		}
	}
	add("sandbox.net", destinations(used.Net), destinations(allowed.Net), func(a, u string) bool {
		return policy.Narrower("allow:"+a, "allow:"+u) == "allow:"+u
	})
	add("tools.allow", orEverything(used.Tools.Allow), orEverything(allowed.Tools.Allow), func(a, u string) bool {
		a, _, _ = catalog.CutDigest(a)
		a, _, _ = catalog.CutArguments(a) // nothing observes the arguments of a program
		return a == u || catalog.ToolMatches(a, strings.TrimSuffix(u, "*"), dpkg.Installs)
	})
	add("data.writable", orEverything(used.Data.Writable), orEverything(allowed.Data.MayWrite()), func(a, u string) bool {
		return hostfs.Within(u, a)
	})
	if allowed.Data.Writable == nil && allowed.Data.Readable != nil { // what may be written by readable alone may only be read
		differences = slices.DeleteFunc(differences, func(d Difference) bool { return d.Setting == "data.writable" && !d.Used })
	}
	for _, one := range used.Tools.Allow {
		if slices.ContainsFunc(allowed.Tools.Deny, func(rule string) bool { return catalog.ToolMatches(rule, one, dpkg.Installs) }) {
			differences = append(differences, Difference{"tools.allow", one, true})
		}
	}
	return differences
}

// destinations returns the single network rules in net, the network setting of a profile; everything for
// "host", and none for "none".
func destinations(net string) []string {
	rules, some := strings.CutPrefix(net, "allow:")
	switch {
	case net == "host":
		return []string{everything}
	case !some:
		return nil
	}
	return strings.Split(rules, ",")
}

// orEverything returns list, the rules of a setting of a profile, or for nil, which restricts nothing, a list
// with the value everything.
func orEverything(list []string) []string {
	if list == nil {
		return []string{everything}
	}
	return list
}
