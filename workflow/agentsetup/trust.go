package agentsetup

// A Trust is what Codex thinks of the hooks in its configuration: it runs only those that the person has accepted.
type Trust string

// The states of trust.
const (
	Trusted   Trust = "trusted"
	Untrusted Trust = "not trusted"
	Modified  Trust = "changed since it was trusted"
	Unknown   Trust = "trust unknown"
)

// CodexTrust returns whether Codex trusts snapfs's hooks.
func CodexTrust(s Setup) Trust { return Unknown }
