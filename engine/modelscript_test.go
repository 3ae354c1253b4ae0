package engine_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// A modelScript is what a test plays. It is drawn whole before anything is done,
// so that what becomes of one step changes nothing of the others, and a script
// that fails shrinks step by step.
type modelScript []modelStep

// GoString keeps rapid's own report short: [model.report] shows the steps.
func (s modelScript) GoString() string { return fmt.Sprintf("%d steps", len(s)) }

// A modelStep is one thing done by the user, or to a sandbox, which is made when
// it is first named.
type modelStep struct {
	op, box string
	// Of an edit.
	file   string
	how    int
	line   int
	looked bool
	// answers to conflicts: "mine", "theirs", or none.
	answers string
	// state is the number of the state that a rollback goes to.
	state int
	// The step of the operation at which it fails, or its process is killed; 0: none.
	fails, killed int
	// later: the clock has moved on since the step before.
	later bool
}

const (
	opUser     = "user edits"
	opBox      = "sandbox edits"
	opPromote  = "promote"
	opApply    = "apply"
	opRefresh  = "refresh"
	opUndo     = "undo"
	opSnapshot = "snapshot"
	opRollback = "rollback"
	opRemove   = "remove"
)

// modelOps are the kinds of steps, as often as they come.
func modelOps() []string {
	return []string{
		opUser, opUser, opUser, opBox, opBox, opBox, opBox, opPromote, opPromote, opPromote,
		opRefresh, opRefresh, opUndo, opUndo, opApply, opSnapshot, opRollback, opRemove,
	}
}

// drawScript draws some fifteen steps, now and then many more. They come in parts,
// for a long script with one generous bound would hardly ever be a short one.
func drawScript(t *rapid.T) modelScript {
	parts := rapid.Custom(func(t *rapid.T) modelScript {
		var s modelScript
		for range 3 {
			s = append(s, rapid.SliceOf(rapid.Custom(drawStep)).Draw(t, "part")...)
		}
		return s
	})
	return parts.Draw(t, "script")
}

func drawStep(t *rapid.T) modelStep {
	s := modelStep{op: rapid.SampledFrom(modelOps()).Draw(t, "op")}
	if s.op != opUser && s.op != opUndo {
		s.box = rapid.SampledFrom([]string{"x", "x", "x", "y", "y", "z"}).Draw(t, "sandbox")
	}
	s.later = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "later")
	switch s.op {
	case opUser, opBox:
		s.file = rapid.SampledFrom(modelFiles()).Draw(t, "file")
		s.how = rapid.IntRange(0, 9).Draw(t, "how")
		s.line = rapid.IntRange(0, modelLines-1).Draw(t, "line")
		s.looked = rapid.Bool().Draw(t, "looked at")
		return s
	case opPromote, opRefresh:
		s.answers = rapid.SampledFrom([]string{"", "", "", "", "mine", "theirs"}).Draw(t, "answers")
	case opRollback:
		s.state = rapid.IntRange(0, 3).Draw(t, "state")
	}
	switch rapid.SampledFrom([]string{"", "", "", "", "", "fails", "fails", "killed"}).Draw(t, "crash") {
	case "fails":
		s.fails = rapid.IntRange(1, 60).Draw(t, "step")
	case "killed":
		s.killed = rapid.IntRange(1, 50).Draw(t, "step")
	}
	return s
}

// String is the step in words.
func (s modelStep) String() string {
	who, where := s.box, s.file
	if s.op == opUser {
		who = "the user"
	}
	switch {
	case s.op == opUser, s.op == opBox:
		return who + " edits " + where
	case s.op == opRollback:
		return who + ": rollback to " + map[bool]string{true: "its base", false: fmt.Sprintf("state %d", s.state)}[s.state == 0] + s.crash()
	case s.op == opUndo:
		return "undo" + s.crash()
	}
	return who + ": " + s.op + s.crash()
}

func (s modelStep) crash() string {
	switch {
	case s.fails > 0:
		return fmt.Sprintf(", failing from its step %d on", s.fails)
	case s.killed > 0:
		return fmt.Sprintf(", killed at its step %d", s.killed)
	}
	return ""
}

// String shows a tree in a line: of each file what edits have written, by number
// of line; "=" where it is as it was at first.
func (t modelTree) String() string {
	var all []string
	for _, f := range modelFiles() {
		content, ok := t[f]
		if !ok {
			all = append(all, f+" is not there")
			continue
		}
		var lines []string
		for i, l := range strings.Split(strings.Trim(strings.ReplaceAll(content, "\x00", "\n"), "\n"), "\n") {
			if l != fmt.Sprintf("line %d", i) {
				lines = append(lines, fmt.Sprintf("%d:%s", i, l))
			}
		}
		if len(lines) == 0 {
			lines = []string{"="}
		}
		all = append(all, f+"{"+strings.Join(lines, " ")+"}")
	}
	return strings.Join(all, ", ")
}
