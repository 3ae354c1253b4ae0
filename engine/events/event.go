package events

import (
	"strconv"
	"time"
)

// Types of events in the event log of a state directory: the values of the CloudEvents attribute type.
const (
	SandboxCreated    = "snapfs.sandbox.created"
	SandboxRenamed    = "snapfs.sandbox.renamed"
	SandboxRemoved    = "snapfs.sandbox.removed"
	SandboxRefreshed  = "snapfs.sandbox.refreshed"
	SandboxRolledBack = "snapfs.sandbox.rolledback"
	SnapshotCreated   = "snapfs.snapshot.created"
	CommandStarted    = "snapfs.command.started"
	CommandEnded      = "snapfs.command.ended"
	CommandRefused    = "snapfs.command.refused"
	LimitReached      = "snapfs.limit.reached"
	NetworkRefused    = "snapfs.network.refused"
	NetworkAllowed    = "snapfs.network.allowed"
	NetworkAsked      = "snapfs.network.asked"
	AccessRefused     = "snapfs.access.refused"
	FileRead          = "snapfs.file.read"
	DriftFound        = "snapfs.drift.found"
	PlanMade          = "snapfs.plan.made"
	ApprovalAsked     = "snapfs.approval.asked"
	ChangesPromoted   = "snapfs.changes.promoted"
	PromotionUndone   = "snapfs.promotion.undone"
	PromotionRedone   = "snapfs.promotion.redone"
	JobChanged        = "snapfs.job.changed"
	TriggerCreated    = "snapfs.trigger.created"
	TriggerRemoved    = "snapfs.trigger.removed"
	SelfTested        = "snapfs.selftest.done"
	CheckEnded        = "snapfs.check.ended"
	// EventsLost is the type of an event that a reader gets in place of events that were removed from the
	// stream. It is stored nowhere.
	EventsLost = "snapfs.events.lost"
)

// Types of events that only a [Witness] gets, before the operation starts: it stores them in the sandbox's
// signed evidence log.
const (
	ChangesPromoting   = "snapfs.changes.promoting"
	PromotionUndoing   = "snapfs.promotion.undoing"
	PromotionRedoing   = "snapfs.promotion.redoing"
	SandboxRollingBack = "snapfs.sandbox.rollingback"
)

// An Event is one entry of the event stream of a state directory. Its JSON form is that of a CloudEvents 1.0
// event.
type Event struct {
	// Unwitnessed is set by a caller who knows that the sandbox keeps no evidence, so that no
	// [Witness] need look. It is stored nowhere.
	Unwitnessed bool `json:"-"`
	// ID is the event's number in the stream, in decimal, from 1. Numbers have no gaps.
	ID          string `json:"id"`
	SpecVersion string `json:"specversion"`
	// Source is the path of the state directory.
	Source string `json:"source"`
	Type   string `json:"type"`
	// Subject is the name of the sandbox, or "" if the event is about none. The name may be
	// used again; SandboxID is not.
	Subject   string    `json:"subject,omitempty"`
	SandboxID string    `json:"sandboxid,omitempty"`
	Time      time.Time `json:"time"`
	// ContentType is always application/json, the type of Data.
	ContentType string `json:"datacontenttype"`
	Data        Data   `json:"data"`
}

// Number returns the number of the event in the event log of its state directory, as an integer; 0 if it has
// none yet.
func (e Event) Number() uint64 {
	n, _ := strconv.ParseUint(e.ID, 10, 64) // 0 for anything else
	return n
}

// Data is the content of an event. The type of the event decides which of the fields are set.
type Data struct {
	// Workspace, Backends and Ephemeral describe a new sandbox; Origin is the sandbox that it was
	// forked from.
	Workspace string   `json:"workspace,omitempty"`
	Backends  []string `json:"backends,omitempty"`
	Ephemeral bool     `json:"ephemeral,omitempty"`
	Origin    string   `json:"origin,omitempty"`
	// Evidence is set for a new sandbox that keeps evidence.
	Evidence bool `json:"evidence,omitempty"`
	// Held and Crossed are the names of the probes of a self-test that held, and of those that broke out.
	Held    []string `json:"held,omitempty"`
	Crossed []string `json:"crossed,omitempty"`
	// Job is the number of a job, and Trigger that of the trigger that submits or has submitted it.
	Job     int `json:"job,omitempty"`
	Trigger int `json:"trigger,omitempty"`
	// Name is the new name of a renamed sandbox, the name of a snapshot, the new state of a job, the condition of a
	// trigger ("schedule", "files", "webhook"), or the kind of a refusal: "hidden" for a file, "read", "write",
	// "program", or "hook" and "mcp" for a tool of an agent.
	Name string `json:"name,omitempty"`
	// Command are the arguments of a command, of which long ones are cut.
	Command []string `json:"command,omitempty"`
	// Env are the variables of a command, as NAME=VALUE. Only a [Witness] gets them.
	Env []string `json:"-"`
	// Check are all arguments of a check, and Output is the path of its output. Only a [Witness] gets them.
	Check  []string `json:"-"`
	Output string   `json:"-"`
	// Run is a text that the start and the end of one command share, and no other command of the
	// sandbox has.
	Run string `json:"run,omitempty"`
	// Status is the exit status of an ended command: 128 and more for a signal.
	Status *int `json:"status,omitempty"`
	// Seconds is how long a command ran.
	Seconds float64 `json:"seconds,omitempty"`
	// CPUSeconds and MemoryBytes are what the sandbox's processes have used since its container
	// started, where limits count them: processor time and the most memory at one time.
	CPUSeconds  float64 `json:"cpu_seconds,omitempty"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	// Limit and Value are the name and the value of a reached limit. Reason is a sentence: why
	// something happened.
	Limit  string `json:"limit,omitempty"`
	Value  string `json:"value,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Host and Port are a destination that a network rule decided on.
	Host string `json:"host,omitempty"`
	Port int    `json:"port,omitempty"`
	// Promotion is the identifier of a promotion, Plan the fingerprint of a plan, Target its
	// directory, and Changes the number of changed paths.
	Promotion string `json:"promotion,omitempty"`
	Plan      string `json:"plan,omitempty"`
	Target    string `json:"target,omitempty"`
	Changes   int    `json:"changes,omitempty"`
	// Paths are the paths of conflicts or of changes that need approval: at most [maxPaths], of
	// which long ones are cut.
	Paths []string `json:"paths,omitempty"`
	// First and Last are the numbers of removed events, only in [EventsLost].
	First uint64 `json:"first,omitempty"`
	Last  uint64 `json:"last,omitempty"`
}

// maxPaths is how many paths an event lists at most in Data.Paths, so that an event stays small.
const maxPaths = 10

// Bounds of a command in an event, so that an event stays small: the number of arguments, and the bytes of
// each.
const (
	maxArgs  = 32
	maxBytes = 256
)

// cut shortens text for an event: it returns text if it has at most most bytes, and otherwise its first most
// bytes and "…".
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}

// AddPath adds a path that an event is about to d.Paths: its first 1,024 bytes, and nothing once there are
// [maxPaths].
func (d *Data) AddPath(path string) {
	if len(d.Paths) < maxPaths {
		d.Paths = append(d.Paths, cut(path, 1024))
	}
}

// Command returns the arguments of a command in the short form of an event: at most 32, each of at most 256
// bytes. "…" stands for the parts left out.
func Command(args []string) []string {
	var short []string
	for i, arg := range args {
		if i == maxArgs {
			return append(short, "…")
		}
		short = append(short, cut(arg, maxBytes))
	}
	return short
}
