// Package agentsetup writes snapfs's hooks (commands that a coding agent runs, for example before it calls a
// tool) into the configuration of the agent, and removes them again.
//
// The methods [Setup.Install] and [Setup.Uninstall] return the edits and change nothing; the caller shows
// them and calls [Edit.Write]. Both change only entries that run snapfs, and leave every other byte as it is
// (internal/confedit). Installing twice is the same as installing once.
package agentsetup
