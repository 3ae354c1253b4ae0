package prove

// HTTPRulePath is the path of the only requests that the probes http-method and http-path find allowed, by GET. The
// caller makes a network rule of it.
const HTTPRulePath = "/prove"

// The tokens of a language model for the probe tokens: ProofBudget is the budget of the sandbox that the caller makes,
// and ProofUsage what the caller's server reports for each request. The budget allows one request and not a second.
const (
	ProofBudget = 200
	ProofUsage  = 180
)

// AllowedArgument is the only first argument with which the policy of the sandbox lets the program of the probe
// tools-arguments be executed.
const AllowedArgument = "allowed"

// ReplacedByPipe is the path, relative to the workspace, of an existing file that the probe approval replaces by a
// pipe.
const ReplacedByPipe = "notes"

// CarriedPaths returns the paths, relative to the workspace, that the probe approval makes. Each needs approval to be
// promoted, because the file runs by itself or leads out of the workspace.
func CarriedPaths() []string {
	return []string{".envrc", ".github/workflows/build.yml", "CLAUDE.md", "leads-out", ReplacedByPipe, ".venv/lib/python3/site-packages/startup.pth"}
}
