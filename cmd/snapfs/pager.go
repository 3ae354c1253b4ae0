package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/internal/run"
)

// Colours of text on a terminal, all of one length, so that columns stay aligned.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// capable reports whether f is a terminal that understands control sequences, for colours and progress lines.
// It returns false with --json.
func (u *ui) capable(f *os.File) bool {
	term := os.Getenv("TERM")
	return !u.json && term != "" && term != "dumb" && isTerminal(f)
}

// colours reports whether text on f may have colours: f is a terminal, and the variable of
// no-color.org is not set.
func (u *ui) colours(f *os.File) bool {
	return u.capable(f) && os.Getenv("NO_COLOR") == "" //nolint:misspell // the variable's name
}

// paint returns text in a colour if standard output may have colours, and otherwise unchanged.
func (u *ui) paint(colour, text string) string { return u.painter()(colour, text) }

// painter returns the function [ui.paint] for many texts: it looks at standard output only once.
func (u *ui) painter() func(colour, text string) string {
	if !u.colours(u.out) {
		return func(_, text string) string { return text }
	}
	return func(colour, text string) string { return colour + text + plain }
}

// pager returns the shell command of the person's pager, as git chooses it, or "" for none.
func pager() string {
	for _, name := range []string{"SNAPFS_PAGER", "PAGER"} {
		if command, set := os.LookupEnv(name); set {
			if command == "cat" {
				command = ""
			}
			return command
		}
	}
	if _, err := run.Look("less"); err != nil {
		return ""
	}
	return "less"
}

// paged calls text to write long output to f, through the person's pager if f is a terminal. Leaving the
// pager early is no error, because the person has seen enough.
func (u *ui) paged(f *os.File, text func(w io.Writer) error) error {
	command := ""
	if u.capable(f) {
		command = pager()
	}
	if command == "" {
		return text(f)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	env := os.Environ()
	for name, value := range map[string]string{"LESS": "FRX", "LV": "-c"} {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"="+value)
		}
	}
	done := make(chan error, 1)
	go func() {
		err := run.Run(context.Background(), run.Program{Name: "sh", Args: []string{"-c", command}, Env: env, Stdin: r, Stdout: f, Stderr: u.err})
		r.Close() // wakes text, which may have more to write
		done <- err
	}()
	err = text(w)
	w.Close()
	ended := <-done
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	var e *run.Error
	if err == nil && errors.As(ended, &e) && (e.Code == 126 || e.Code == 127) { // it never ran
		return ended
	}
	return err
}

// page prints v, the result of a command, as JSON with --json. Otherwise it calls text, whose output goes
// through the person's pager.
func (u *ui) page(v any, text func(w io.Writer) error) error {
	if u.json {
		return u.result(v, nil)
	}
	return u.paged(u.out, text)
}

// A letterPainter is a writer that colours, in a table of changes, the letter at the beginning of each line
// that says how a path changed.
type letterPainter struct {
	w   io.Writer
	mid bool // within a line
}

func (p *letterPainter) Write(text []byte) (int, error) {
	var out []byte
	for _, c := range text {
		colour := map[byte]string{'A': green, 'M': yellow, 'D': red, 'R': cyan}[c]
		if p.mid || colour == "" {
			out = append(out, c)
		} else {
			out = append(append(append(out, colour...), c), plain...)
		}
		p.mid = c != '\n'
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}
