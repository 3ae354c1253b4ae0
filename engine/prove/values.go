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
