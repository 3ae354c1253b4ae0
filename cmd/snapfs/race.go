package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/workflow/race"
	"github.com/spf13/cobra"
)

// A racer is one run of `snapfs race`, which tries several commands in sandboxes of their own (attempts): the
// values of its flags, with the methods that run the attempts and choose a winner.
type racer struct {
	a     *app
	flags requestFlags
	// times, try and file select the attempts: one command several times, shell commands, or a
	// file with one command a line.
	times int
	try   []string
	file  string

	check, score                       string
	first, lower, keep, promote, quiet bool
	jobs, tail                         int
	timeout                            time.Duration
	output                             string
}

func newRace(a *app) *cobra.Command {
	r := racer{a: a}
	cmd := &cobra.Command{
		Use:   "race [flags] [-- command [argument...]]",
		Short: "run several attempts in parallel clones and take the best",
		Long: `Creates several sandboxes of one base before the first command starts, and runs an
attempt in each: one command several times (-n), or different ones (--try, --file). It
then shows each attempt's result, and the paths that several results share.

An attempt passes if its command exits with status 0, and so does --check, which runs
in the same sandbox after the command's last process. snapfs undoes the changes that a
check or score command makes.

--first promotes the first attempt that passes and stops the others. --score promotes
the attempt for which a command prints the highest number, or, with --lower, the
lowest. Without either, snapfs asks on a terminal and promotes nothing elsewhere.
Promoting merges, as "snapfs promote" does. If promoting is refused, or with
--promote=false, snapfs keeps the winner's sandbox. It removes all others, unless
--keep keeps those of finished attempts.

An attempt has no standard input. $SNAPFS_ATTEMPT is its number, from 1, and
$SNAPFS_ATTEMPTS the number of attempts. A file holds its output; snapfs keeps those of
the last ten races.

The exit status is 0 if an attempt passed, and was promoted where that was requested,
and 1 if none passed.`,
		Example: `  snapfs race -n 8 --first --check 'make test' -- ./fix-it
  snapfs race --try 'sed -i s/-O2/-O3/ Makefile' --try 'sed -i s/gcc/clang/ Makefile' \
      --check make --score ./throughput
  snapfs race --file attempts.txt --jobs 2 --timeout 10m --keep --name fix`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := r.request(cmd, args)
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), req)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	r.flags.add(cmd)
	f := cmd.Flags()
	f.IntVarP(&r.times, "attempts", "n", 2, "run the command in this `many` attempts")
	f.StringArrayVar(&r.try, "try", nil, "add an attempt with this shell `command`; may be repeated")
	f.StringVar(&r.file, "file", "", "read one shell command per attempt from this `file`; # starts a comment")
	f.StringVar(&r.check, "check", "", "require this shell `command` to succeed after an attempt")
	f.StringVar(&r.score, "score", "", "rank attempts by the number this shell `command` prints")
	f.BoolVar(&r.lower, "lower", false, "with --score, prefer the lowest")
	f.BoolVar(&r.first, "first", false, "promote the first attempt that passes and stop the others")
	f.BoolVar(&r.promote, "promote", true, "promote the winner; --promote=false keeps its sandbox")
	f.BoolVar(&r.keep, "keep", false, "keep the sandboxes of all finished attempts")
	f.StringVar(&r.flags.name, "name", "", "use this `name` and a number for each sandbox")
	f.IntVarP(&r.jobs, "jobs", "j", 0, "run at most this `many` attempts at once (default all)")
	f.Var((*durationValue)(&r.timeout), "timeout", "stop an attempt, its check and score after this `long`")
	f.StringVar(&r.output, "output", "", "write the attempts' output to this `directory`")
	f.IntVar(&r.tail, "tail", 5, "show this many last `lines` of a failed attempt's output")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "print no progress")
	f.SetInterspersed(false)
	return cmd
}

// request returns the request for a race, several commands in sandboxes of their own, that the command line
// of `snapfs race` describes.
func (r *racer) request(cmd *cobra.Command, args []string) (race.Request, error) {
	if err := r.checkFlags(cmd, args); err != nil {
		return race.Request{}, err
	}
	base, dir, err := r.flags.request(cmd.Context(), r.a)
	if err != nil {
		return race.Request{}, err
	}
	req := race.Request{Request: base, First: r.first, Lower: r.lower, Jobs: r.jobs, Timeout: r.timeout}
	if req.Output, err = r.outputDir(); err != nil {
		return req, err
	}
	env := hostfs.Environ(os.Environ(), base.Policy.Env)
	commands, err := r.commands(args)
	for _, c := range commands {
		req.Attempts = append(req.Attempts, engine.Command{Args: c, Env: env, Dir: dir})
	}
	if r.check != "" {
		req.Check = &engine.Command{Args: inShell(r.check), Env: env, Dir: dir}
	}
	if r.score != "" {
		req.Score = &engine.Command{Args: inShell(r.score), Env: env, Dir: dir}
	}
	return req, err
}

// checkFlags returns a usage error for flags and arguments of `snapfs race` that exclude each other.
func (r *racer) checkFlags(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	listed := given("try") || given("file")
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{r.first && given("score"), "--first and --score exclude one another"},
		{r.lower && !given("score"), "--lower requires --score"},
		{given("promote") && r.promote && !r.first && !given("score") && !r.asks(), "--promote requires --first, --score or a terminal to ask on"},
		{given("attempts") && r.times < 1, "--attempts must be at least 1"},
		{r.times > race.MostAttempts, fmt.Sprintf("--attempts must be at most %d", race.MostAttempts)},
		{min(int64(r.jobs), int64(r.tail), int64(r.timeout)) < 0, "--jobs, --tail and --timeout must not be negative"},
		{given("try") && given("file"), "--try and --file exclude one another"},
		{listed && (len(args) > 0 || given("attempts")), "--try and --file exclude a command after the flags and -n"},
		{!listed && len(args) == 0, "no command: add one after --, or --try or --file"},
	} {
		if rule.broken {
			return usageError(errors.New(rule.text))
		}
	}
	return nil
}

// outputDir returns the absolute directory for the attempts' output, from --output, or "" without the flag.
func (r *racer) outputDir() (string, error) {
	if r.output == "" {
		return "", nil
	}
	return absolute(r.output)
}

func inShell(script string) []string { return []string{"/bin/sh", "-c", script} }

// commands returns the command that each attempt of the race runs, from the arguments and flags of `snapfs
// race`.
func (r *racer) commands(args []string) (list [][]string, err error) {
	if r.file != "" {
		data, err := os.ReadFile(r.file)
		if err != nil {
			return nil, fmt.Errorf("reading the commands: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				list = append(list, inShell(line))
			}
		}
		if list == nil {
			return nil, usageError(fmt.Errorf("no command in %s", r.file))
		}
		return list, nil
	}
	for _, t := range r.try {
		if t == "" {
			return nil, usageError(errors.New("--try is empty"))
		}
		list = append(list, inShell(t))
	}
	if list == nil {
		list = slices.Repeat([][]string{args}, r.times)
	}
	return list, nil
}

// asks reports whether a person chooses the winner of the race at its end.
func (r *racer) asks() bool {
	return r.a.ui.interactive() && !r.keep && r.promote && !r.first && r.score == ""
}

func (r *racer) run(ctx context.Context, req race.Request) error {
	e, err := r.a.engine(ctx)
	if err != nil {
		return err
	}
	// A reader of snapfs's output may stop early. SIGPIPE must not end snapfs before it
	// has removed its sandboxes.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	b := newBoard(r.a.ui, req, r.quiet)
	if b.live || r.quiet { // the board shows waiting attempts
		req.Admission.Waiting = nil
	}
	req.Progress = b.note
	race, err := race.New(e).Race(ctx, req)
	b.end()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // finish what the race began
	if len(race.Missing) > 0 {
		r.a.missing(engine.Level{Missing: race.Missing})
	}
	doc := raceDocument{Race: race, Kept: []string{}}
	err = r.settle(ctx, race, &doc)
	err = errors.Join(err, race.Close(ctx))
	if r.a.ui.json {
		err = errors.Join(err, r.a.ui.result(doc, nil))
	}
	if err == nil && len(race.Passed()) == 0 {
		return errSilent
	}
	return err
}

// settle ends a race: it prints the attempts' results, and promotes, keeps or removes their sandboxes as the
// flags say.
func (r *racer) settle(ctx context.Context, contest *race.Race, doc *raceDocument) error {
	if !r.a.ui.json {
		if err := printRace(r.a.ui.out, contest); err != nil && !errors.Is(err, syscall.EPIPE) {
			return err
		}
		r.tails(contest)
	}
	winner := contest.Winner
	if r.asks() && len(contest.Passed()) > 0 {
		var err error
		if winner, err = r.pick(ctx, contest, doc); err != nil {
			return err
		}
		doc.Picked = winner
	}
	if r.keep {
		for _, a := range contest.Attempts {
			if a.State == race.Passed || a.State == race.Failed {
				if err := r.keepIt(ctx, contest, a.Number, doc); err != nil {
					return err
				}
			}
		}
	}
	if winner == 0 {
		if len(contest.Passed()) > 0 && !r.keep && !r.asks() && !r.quiet {
			r.a.ui.notice("nothing is promoted or kept: neither --first nor --score picks a winner")
			r.a.ui.hint("snapfs race --first …", "snapfs race --score COMMAND …", "snapfs race --keep …")
		}
		return nil
	}
	r.a.ui.notice("attempt " + strconv.Itoa(winner) + " wins")
	if !r.promote {
		return r.keepIt(ctx, contest, winner, doc)
	}
	return r.promoteIt(ctx, contest, winner, doc)
}

// pick asks the person for the number of the race's winner and returns it, or 0 for none. The answer "keep",
// also assumed at the end of input, keeps the sandbox of every attempt that passed.
func (r *racer) pick(ctx context.Context, race *race.Race, doc *raceDocument) (int, error) {
	var words, looks []string
	var answers []answer
	for _, n := range race.Passed() {
		number := strconv.Itoa(n)
		words, looks = append(words, number), append(looks, "l"+number)
		answers = append(answers, answer{number, "promote attempt " + number}, answer{"l" + number, "show what attempt " + number + " changed, then ask again"})
	}
	answers = append(answers, answer{"none", "promote and keep none"}, answer{"keep", "promote none, keep all that passed"})
	question := "promote " + strings.Join(words, ", ") + ", look closer at one (" + looks[0] + "), keep all that passed, or none? [" + words[0] + "/" + looks[0] + "/k/n]"
	for {
		answer := r.a.ui.ask(question, answers...)
		number, err := strconv.Atoi(strings.TrimPrefix(answer, "l"))
		switch {
		case answer == "none":
			return 0, nil
		case answer == "keep":
			for _, n := range race.Passed() {
				if err := r.keepIt(ctx, race, n, doc); err != nil {
					return 0, err
				}
			}
			return 0, nil
		case err == nil && answer[0] != 'l':
			return number, nil
		}
		if err := r.showChanges(ctx, race, number); err != nil {
			return 0, err
		}
	}
}

func (r *racer) showChanges(ctx context.Context, race *race.Race, number int) error {
	changes, err := race.Changes(ctx, number)
	if err != nil {
		return err
	}
	defer changes.Close()
	return printPatch(ctx, r.a.ui.err, changes, true, r.a.ui.colours(r.a.ui.err))
}

func (r *racer) keepIt(ctx context.Context, race *race.Race, number int, doc *raceDocument) error {
	if race.Attempts[number-1].Kept {
		return nil
	}
	name, err := race.Keep(ctx, number)
	if err == nil {
		doc.Kept = append(doc.Kept, name)
		r.a.ui.notice("attempt " + strconv.Itoa(number) + " is kept as " + name)
	}
	return err
}

// promoteIt promotes the changes of the race's winner and removes its sandbox. The sandbox stays if the
// promotion fails, and with --keep.
func (r *racer) promoteIt(ctx context.Context, race *race.Race, winner int, doc *raceDocument) error {
	done, err := race.Promote(ctx, winner)
	name := race.Attempts[winner-1].Sandbox
	if err == nil {
		doc.Promoted = &done
		if !r.a.ui.json {
			r.a.ui.promoted(done, promoteWords)
		}
	}
	if err == nil && !r.keep {
		return race.Remove(ctx, winner)
	}
	if race.Attempts[winner-1].Kept && !slices.Contains(doc.Kept, name) {
		doc.Kept = append(doc.Kept, name)
		r.a.ui.notice("attempt " + strconv.Itoa(winner) + " is kept as " + name)
	}
	return err
}
