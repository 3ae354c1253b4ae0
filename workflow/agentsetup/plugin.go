package agentsetup

import (
	"encoding/json"
	"slices"
	"strings"
)

// pluginHead is the first line of the plugin that snapfs writes for opencode, by which Uninstall recognises
// it.
const pluginHead = "// Made by snapfs agent install; snapfs agent uninstall removes it.\n"

// pluginText is the plugin that snapfs writes for opencode, in JavaScript. It calls snapfs hook as the other
// agents do, with the same events. COMMAND stands for the command line.
const pluginText = `import { spawnSync } from "node:child_process"

const command = COMMAND

// call returns snapfs's answer to an event, or throws if the tool must not be called: before a call everything but a
// success with no answer or a readable one means that, also a killed hook.
function call(event, fields) {
  const r = spawnSync(command[0], [...command.slice(1), event], { input: JSON.stringify({ hook_event_name: event, ...fields }), encoding: "utf8" })
  const before = event === "PreToolUse"
  if (r.error || (before ? r.status !== 0 : r.status === 2)) throw new Error(r.stderr || String(r.error ?? "snapfs hook ended with " + (r.signal ?? r.status)))
  if (r.stdout === "") return {}
  let answer
  try {
    answer = JSON.parse(r.stdout).hookSpecificOutput
  } catch {} // none
  if (!answer && before) throw new Error("snapfs hook gave no answer that can be read")
  return answer ?? {}
}

export const Snapfs = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    const answer = call("PreToolUse", {
      session_id: input.sessionID, cwd: directory, tool_name: input.tool, tool_use_id: input.callID, tool_input: output.args,
    })
    if (answer.updatedInput) Object.assign(output.args, answer.updatedInput)
  },
  "tool.execute.after": async (input, output) => {
    const answer = call("PostToolUse", { session_id: input.sessionID, cwd: directory, tool_name: input.tool, tool_use_id: input.callID })
    if (answer.additionalContext) output.output += "\n" + answer.additionalContext
  },
})
`

// plugin returns the source of the plugin by which the coding agent opencode calls snapfs, with the command
// line to call.
func (s Setup) plugin() ([]byte, error) {
	command, err := json.Marshal(slices.Concat(s.Program, []string{"hook", "--agent", s.Agent}, s.Flags))
	return []byte(pluginHead + strings.Replace(pluginText, "COMMAND", string(command), 1)), err
}
