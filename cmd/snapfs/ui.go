package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/snapfs/snapfs/errs"
)

// A ui prints results and messages of a command. Results go to standard output. All else goes to standard
// error behind "snapfs: ", in lower case and without a full stop; commands that help follow an error as lines
// "hint: ". A ui asks questions only on a terminal. With --json, results and errors are JSON, one document
// each.
type ui struct {
	in   *os.File
	out  *os.File
	err  *os.File
	json bool
	// raw is set while a command has the terminal in raw mode, so that a newline needs a
	// carriage return.
	raw atomic.Bool
	// lines receives the person's input lines, from the first question on.
	lines chan string
}

func newUI(in, out, err *os.File) *ui { return &ui{in: in, out: out, err: err} }

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// width returns the width in characters of the terminal that f is, for lists that must fit; 80 if it is
// unknown.
func width(f *os.File) int {
	if cols, _, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 {
		return cols
	}
	return 80
}

// interactive reports whether a person can be asked a question: standard input and standard error are both
// terminals.
func (u *ui) interactive() bool {
	return !u.json && isTerminal(u.in) && isTerminal(u.err)
}

// notice prints a message to the person on standard error, behind "snapfs: ".
func (u *ui) notice(s string) {
	switch {
	case u.json:
	case u.raw.Load():
		fmt.Fprint(u.err, "\r\nsnapfs: "+tame(s)+"\r\n")
	default:
		fmt.Fprintln(u.err, "snapfs: "+tame(s))
	}
}

// notices prints each of lines as a message to the person on standard error, behind "snapfs: ".
func (u *ui) notices(lines []string) {
	for _, line := range lines {
		u.notice(line)
	}
}

// result prints the result of a command: v as JSON with --json, otherwise the output of text.
func (u *ui) result(v any, text func(w io.Writer) error) error {
	if !u.json {
		return text(u.out)
	}
	enc := json.NewEncoder(u.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// say prints the result of a command that is a single line: v as JSON with --json, otherwise text.
func (u *ui) say(v any, text string) error {
	return u.result(v, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// An answer is a possible answer to a question: its word, of which a person types the first letters, and an
// explanation.
type answer struct{ word, means string }

// ask asks the person a question until the input is the beginning of an answer's word, and returns that word.
// At the end of input, or after a signal, it returns the last answer. After any other input it explains the
// answers.
func (u *ui) ask(question string, answers ...answer) string {
	none := answers[len(answers)-1].word
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if u.lines == nil {
		u.lines = make(chan string)
		go u.listen()
	}
	for {
		fmt.Fprint(u.err, question+" ")
		select {
		case line, more := <-u.lines:
			if !more {
				fmt.Fprintln(u.err)
				return none
			}
			for _, a := range answers {
				if line != "" && strings.HasPrefix(a.word, line) {
					return a.word
				}
			}
			explain(u.err, answers)
		case <-ctx.Done():
			fmt.Fprintln(u.err)
			return none
		}
	}
}

// agrees asks a person a question with the answers yes and no, which these texts explain, and reports the
// answer. The end of input means no. Without a terminal it asks nothing and returns true.
func (u *ui) agrees(question, yes, no string) bool {
	return !u.interactive() || u.ask(question+" [y/n]", answer{"yes", yes}, answer{"no", no}) == "yes"
}

func explain(w io.Writer, answers []answer) {
	for _, a := range answers {
		fmt.Fprintf(w, "  %-8s %s\n", a.word, a.means)
	}
}

// listen reads lines that a person types on standard input and sends them to ui.lines, until the end of
// input.
func (u *ui) listen() {
	defer close(u.lines)
	for line, more := u.line(); more; line, more = u.line() {
		u.lines <- line
	}
}

// line reads one line of input, and no byte beyond it. It returns the line trimmed and in lower case, or false at
// the end of input.
func (u *ui) line() (string, bool) {
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := u.in.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return strings.ToLower(strings.TrimSpace(string(line))), true
		case n == 1:
			line = append(line, b[0])
		case err != nil:
			return "", false
		}
	}
}

// An errorDocument is the JSON form of an error of snapfs, printed with --json in place of a result.
type errorDocument struct {
	Error struct {
		Message string   `json:"message"`
		Status  int      `json:"status"`
		Hints   []string `json:"hints,omitempty"`
		// Kind is a sentinel of package errs, such as "conflict", or "".
		Kind string `json:"kind,omitempty"`
		// Details are the conflicts and the changes that need approval, where these are the error.
		Details any `json:"details,omitempty"`
	} `json:"error"`
}

// complain prints an error with its hints, as text or with --json as a document that also has the exit
// status.
func (u *ui) complain(err error, status int, hints []string) {
	if u.json {
		var d errorDocument
		d.Error.Message, d.Error.Status, d.Error.Hints = err.Error(), status, hints
		d.Error.Details = errs.DetailsOf(err)
		switch kind := errs.KindOf(err); {
		case errors.Is(err, errUsage):
			d.Error.Kind = errs.ErrInvalid.Error()
		case kind != nil:
			d.Error.Kind = kind.Error()
		}
		enc := json.NewEncoder(u.err)
		enc.SetEscapeHTML(false)
		enc.Encode(d) //nolint:errcheck // the error output itself is gone
		return
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(u.err, "snapfs: "+tame(strings.TrimRight(line, "\n")))
	}
	for _, h := range hints {
		fmt.Fprintln(u.err, "hint: "+tame(h))
	}
}

// passesStatus is the cobra annotation of commands such as `snapfs run`, which exit with the status of the
// command that they run.
const passesStatus = "passes-status"

// finish prints the error err of the command cmd, if any, and returns the exit status of the program.
func (a *app) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return a.status
	}
	if errors.Is(err, errSilent) {
		return exitFailure
	}
	_, passes := cmd.Annotations[passesStatus]
	var hints []string
	if strings.HasPrefix(err.Error(), "unknown command") {
		err = usageError(err)
		typed := a.first
		if args := cmd.Flags().Args(); cmd.HasParent() && len(args) > 0 {
			typed = args[0]
		}
		hints = similar(cmd, cmd.CommandPath(), typed)
	}
	status := statusOf(err, passes)
	if errors.Is(err, errUsage) {
		a.ui.json = a.ui.json || asksJSON(os.Args[1:])
		hints = append(hints, cmd.CommandPath()+" --help")
	}
	a.ui.complain(err, status, append(errs.HintsOf(err), hints...))
	return status
}

// asksJSON reports whether args contain --json. It is for usage errors, after which cobra may not have read
// all flags.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

// errSilent makes snapfs exit with status 1 and no message: the command has already printed why.
var errSilent = errors.New("")

// hint prints a line "hint: " for each of commands, which the person may run next.
func (u *ui) hint(commands ...string) {
	if u.json {
		return
	}
	for _, c := range commands {
		fmt.Fprintln(u.err, "hint: "+tame(c))
	}
}
