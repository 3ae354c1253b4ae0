package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network/budget"
)

// A Setting is one value of the policy that a sandbox would have, with the file and line that sets it.
// `snapfs profile` prints these.
type Setting struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	// File is the file or the built-in profile that says it, with its line, or "" and 0 for what
	// snapfs does without a line.
	File string `json:"file"`
	Line int    `json:"line"`
}

// Explain returns all settings of the policy made, each with the file and line that sets it. The policy
// resulted from the profile p and from site, the administrator's bounds; both may be nil.
func Explain(made catalog.Policy, p *Profile, site *Site) []Setting {
	var origins []Origin
	if p != nil {
		origins = slices.Clone(p.Origins)
		slices.Reverse(origins) // the last one counts
	}
	if site != nil {
		origins = append(origins, site.Origins...)
	}
	list := []Setting{}
	add := func(setting, value string) {
		s := Setting{Setting: setting, Value: value}
		for _, o := range origins {
			if o.Setting == setting && (o.Value == value || sameLimit(setting, o.Value, value)) {
				s.File, s.Line = o.File, o.Line
				break
			}
		}
		list = append(list, s)
	}
	for _, f := range made.Limits.Fields() {
		if text := f.Value.String(); text != "" {
			add("limits."+f.Name, text)
		}
	}
	add("sandbox.net", made.Network)
	if last := &list[len(list)-1]; last.File == "" { // with the servers of registries
		if i := slices.IndexFunc(origins, func(o Origin) bool { return o.Setting == "sandbox.registries" }); i >= 0 {
			last.File, last.Line = origins[i].File, origins[i].Line
		}
	}
	if last := &list[len(list)-1]; last.File == "" && site != nil && site.Sandbox.Net != "" && made.Site != nil { // narrowed by both
		if i := slices.IndexFunc(site.Origins, func(o Origin) bool { return o.Setting == "sandbox.net" }); i >= 0 {
			last.File, last.Line = site.Origins[i].File, site.Origins[i].Line
		}
	}
	if made.Ask > 0 {
		add("sandbox.ask", askText(made.Ask))
	}
	for _, l := range listed(&made) {
		for _, v := range l.values {
			add(l.setting, v)
		}
	}
	return list
}

// A listing is one setting of a policy, such as sandbox.env, with each of its values as text. [Explain] shows
// it with its origin.
type listing struct {
	setting string
	values  []string
}

// listed returns the settings of a policy except limits and network, as text, in the order of a profile's
// sections.
func listed(made *catalog.Policy) []listing {
	tools, data, points := made.Tools, made.Data, made.KeyPoints
	if tools == nil {
		tools = &catalog.Tools{}
	}
	if data == nil {
		data = &catalog.Data{}
	}
	if points == nil {
		points = &catalog.KeyPoints{}
	}
	all := []listing{
		{"sandbox.expose", made.Expose},
		{"sandbox.hide", made.Hide},
		{"sandbox.env", made.Env},
		{"sandbox.snapshots", points.At},
	}
	if points.Keep > 0 {
		all = append(all, listing{"sandbox.keep-snapshots", []string{strconv.Itoa(points.Keep)}})
	}
	if points.KeepFor > 0 {
		all = append(all, listing{"sandbox.keep-snapshots-for", []string{units.FormatDuration(points.KeepFor)}})
	}
	if points.KeepSize > 0 {
		all = append(all, listing{"sandbox.keep-snapshots-size", []string{units.FormatSize(points.KeepSize)}})
	}
	if made.Evidence {
		all = append(all, listing{"sandbox.evidence", []string{"true"}})
	}
	if made.KeepEvidence != nil {
		all = append(all, listing{"sandbox.keep-evidence", []string{made.KeepEvidence.String()}})
	}
	all = append(all,
		listing{"tools.allow", tools.Allow},
		listing{"tools.deny", tools.Deny},
		listing{"tools.hook", tools.Hook},
		listing{"tools.mcp", tools.MCP},
		listing{"data.readable", data.Readable},
		listing{"data.writable", data.Writable},
		listing{"data.read-only", data.ReadOnly},
		listing{"data.recorded", data.Recorded},
		listing{"data.secret", data.Secret},
		listing{"data.private", data.Private},
		listing{"result.only", made.Result},
	)
	if made.Direct != nil {
		all = append(all, listing{"direct.commands", made.Direct.Commands})
		if made.Direct.Risky {
			all = append(all, listing{"direct.when", []string{whenRisky}})
		}
	}
	for _, one := range made.Secrets {
		all = append(all, listing{"secrets." + one.Name, []string{strings.Join(one.Hosts, " ")}})
	}
	if made.Budget != nil {
		ceilings := made.Budget.Ceilings()
		for _, name := range slices.Sorted(maps.Keys(ceilings)) {
			if *ceilings[name] > 0 {
				all = append(all, listing{"budget." + name, []string{budget.FormatAmount(name, *ceilings[name])}})
			}
		}
		all = append(all, listing{"budget.hosts", made.Budget.Hosts})
		for _, p := range made.Budget.Prices {
			all = append(all, listing{"prices." + p.Model, []string{priceText(p)}})
		}
	}
	return all
}

// sameLimit reports whether a and b are texts for the same value of the limit called setting, such as 90m and
// 1h30m.
func sameLimit(setting, a, b string) bool {
	const prefix = "limits."
	if len(setting) < len(prefix) || setting[:len(prefix)] != prefix {
		return false
	}
	var one, two catalog.Limits
	_, err := one.SetField(setting[len(prefix):], a)
	_, err2 := two.SetField(setting[len(prefix):], b)
	return err == nil && err2 == nil && one == two
}
