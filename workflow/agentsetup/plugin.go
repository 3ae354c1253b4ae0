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
// agents do, with the same events. COMMAND stands for the command line, and previewImport and previewHook are added for
// a preview.
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

export const Snapfs = async ({ client, directory }) => ({
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

// The parts of the plugin for opencode that show the effects of a shell command, from a throw-away clone, when opencode
// asks the person for a permission to run it. opencode 1.18.33 calls the hook permission.ask of no plugin, but passes
// it the event permission.asked and does not wait for its end. The person sees the effects as a toast beside the
// question. opencode asks after tool.execute.before, where the plugin sees the command.
const (
	previewImport = `import { spawn } from "node:child_process"
`
	previewHook = `
// shells are the inputs of the shell's calls that have begun, and open the ids of the questions that the person has not
// answered.
const shells = new Map(), open = new Set()

// preview has snapfs run the command of a question in a throw-away clone, and shows what it did, unless the person has
// answered by then.
async function preview(client, directory, question) {
  const hook = spawn(command[0], [...command.slice(1), "PREVIEW"])
  let text = "", complaint = "", failure
  hook.on("error", (e) => { failure = String(e) })
  hook.stdin.on("error", () => {}) // it has ended
  hook.stdout.on("data", (data) => { text += data })
  hook.stderr.on("data", (data) => { complaint += data })
  hook.stdin.end(JSON.stringify({
    hook_event_name: "PREVIEW", session_id: question.sessionID, cwd: directory, tool_name: "bash",
    tool_use_id: question.tool.callID, tool_input: shells.get(question.tool.callID),
  }))
  await new Promise((done) => hook.on("close", done))
  let message = failure ?? complaint
  try {
    message = JSON.parse(text).systemMessage ?? message
  } catch {} // none
  if (message && open.has(question.id)) await client.tui.showToast({ body: { title: "snapfs", message, variant: "info", duration: 60000 } })
}

async function permission(client, directory, { type, properties }) {
  if (type === "permission.replied") open.delete(properties.requestID)
  if (type !== "permission.asked" || properties.permission !== "bash" || !shells.has(properties.tool?.callID)) return
  open.add(properties.id)
  await preview(client, directory, properties).catch(() => {}) // the question needs no preview
}
`
)

// plugin returns the source of the plugin by which the coding agent opencode calls snapfs, with the command
// line to call.
func (s Setup) plugin() ([]byte, error) {
	command, err := json.Marshal(slices.Concat(s.Program, []string{"hook", "--agent", s.Agent}, s.Flags))
	text := strings.Replace(pluginText, "COMMAND", string(command), 1)
	if s.Preview {
		const export, before, after = "\nexport const Snapfs", `"tool.execute.before": async (input, output) => {`, `"tool.execute.after": async (input, output) => {`
		text = previewImport + strings.NewReplacer(
			export, strings.ReplaceAll(previewHook, "PREVIEW", previewEvent)+export,
			before, "event: ({ event }) => permission(client, directory, event),\n  "+before+"\n    if (input.tool === \"bash\") shells.set(input.callID, { ...output.args })",
			after, after+"\n    shells.delete(input.callID)",
		).Replace(text)
	}
	return []byte(pluginHead + text), err
}
