package selftest

import (
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/run"
)

// ruleProbes are the names of the self-test's probes that try to break a rule of the sections [data] and [tools] of a
// profile: to write to a read-only path, and to execute a denied program.
var ruleProbes = []string{"data", "tools"}

// ruleTrials returns the tests of rules that a policy can have, each in a sandbox of its own with such a rule: the
// workspace is read-only, and a program is denied.
func (p *prover) ruleTrials() []trial {
	program, err := run.Look("true")
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		program = "/bin/true" // the probe reports that it could not try
	}
	return []trial{
		{probe: "data", args: []string{p.req.Workspace}, rule: func(policy *catalog.Policy) {
			var data catalog.Data
			if policy.Data != nil {
				data = *policy.Data
			}
			data.ReadOnly = append(slices.Clone(data.ReadOnly), p.req.Workspace)
			policy.Data = &data
		}},
		{probe: "tools", args: []string{program}, rule: func(policy *catalog.Policy) {
			var tools catalog.Tools
			if policy.Tools != nil {
				tools = *policy.Tools
			}
			tools.Deny = append(slices.Clone(tools.Deny), program)
			policy.Tools = &tools
		}},
	}
}
