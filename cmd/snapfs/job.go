package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/job"
	"github.com/spf13/cobra"
)

func newJob(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "queue commands that run, are checked and wait for approval by themselves",
		Long: `A job is a command that nobody waits for. "snapfs job submit" stores it and returns at once,
"snapfs job work" carries jobs out: each runs in a sandbox of its own, then its check, and a
result that passes waits for approval, is promoted, or goes through the stages of a profile,
as the submitter chose. A result that cannot be promoted waits for a person.

Jobs are files of the state directory. Any number of workers may run; a job whose worker is
killed begins again with the next one, at most three times, and none is promoted twice.`,
		Example: `  snapfs job submit --check 'make test' -- ./nightly-upgrade
  snapfs job work --once
  snapfs job show 1
  snapfs job approve 1`,
	}
	group(cmd, newJobSubmit(a), newJobWork(a), newJobLs(a), newJobShow(a), newJobTriggers(a), newJobUntrigger(a))
	for _, c := range []struct {
		use, short, long string
		do               func(ctx context.Context, s *job.Store, number int) (*job.Job, error)
	}{
		{
			"approve", "promote the result of a job that waits",
			`Promotes exactly the plan that the job holds, or nothing: if the real tree or the sandbox has
changed since, the job holds the new plan, and waits again. "snapfs plan" and "snapfs diff"
with the job's sandbox show what a plan does.`,
			func(ctx context.Context, s *job.Store, n int) (*job.Job, error) { return s.Approve(ctx, n, "") },
		},
		{
			"reject", "remove the result of a job that waits",
			"Ends a job that waits and removes its sandbox. A stage that waits is undone; earlier stages stay.",
			func(ctx context.Context, s *job.Store, n int) (*job.Job, error) { return s.Reject(ctx, n) },
		},
		{
			"cancel", "end a job that is queued or runs",
			"Ends a job. One that runs ends within a second, with all its processes, and leaves nothing.",
			func(_ context.Context, s *job.Store, n int) (*job.Job, error) { return s.Cancel(n) },
		},
		{
			"rm", "forget a job that has ended",
			"Removes the record and the output of a job that has ended. Without rm, snapfs keeps the newest 500 ended jobs.",
			func(ctx context.Context, s *job.Store, n int) (*job.Job, error) {
				j, err := s.Get(n)
				if err == nil {
					err = s.Remove(ctx, n)
				}
				return j, err
			},
		},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: c.use + " job...", Short: c.short, Long: c.long, Example: "  snapfs job " + c.use + " 3", Args: atLeast("job"),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
				numbers, err := jobNumbers(args)
				if err != nil {
					return err
				}
				for _, n := range numbers {
					j, err := c.do(ctx, job.New(e), n)
					if err == nil {
						err = a.ui.say(shown(j), jobLine(j))
					}
					if err != nil {
						return err
					}
				}
				return nil
			}),
		})
	}
	return cmd
}

// jobNumbers parses the arguments of a command below `snapfs job` as the numbers of jobs.
func jobNumbers(args []string) (list []int, err error) {
	for _, arg := range args {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 {
			return nil, usageError(fmt.Errorf("%q is not the number of a job", arg))
		}
		list = append(list, n)
	}
	return list, nil
}

// A submission is one run of `snapfs job submit`: the values of its flags, with the methods that make the job
// of them.
type submission struct {
	flags            requestFlags
	check, to, class string
	effects          []string
	promote          bool
	timeout, within  time.Duration
	trigger          job.Trigger
}

func newJobSubmit(a *app) *cobra.Command {
	var s submission
	cmd := &cobra.Command{
		Use:   "submit [flags] -- command [argument...]",
		Short: "store a command for a worker",
		Long: `Stores a command, with the environment and the directory that it gets, and prints the number
of the job. The workspace is cloned when a worker begins the job, not now.

A result passes if the command exits with status 0, and so does --check, which runs in the same
sandbox after it. It then waits for "snapfs job approve". With --promote it is merged into the
workspace, if nothing forbids that. With --to it goes through the stages of the profile; a stage
that asks waits for approval.

A profile that you name can list commands that run without a sandbox, in the real workspace, and
can do so for all jobs that declare with --effects none that they only read (snapfs help profile,
[direct]). Nothing of such a job can be reviewed or undone.

--every, --when-changed and --webhook store a trigger instead, and print its number: workers
submit the job on this schedule, or when files of the workspace have changed; a server submits it
for a signed request (docs/jobs.md). No job of a trigger is submitted by a schedule or a change
while the one before it is queued or runs.`,
		Example: `  snapfs job submit --check 'make test' -- ./fix-it
  snapfs job submit --every 24h --check 'make test' -- ./upgrade-dependencies
  snapfs job submit --when-changed 'src/**/*.proto' --promote -- make generate
  snapfs job submit --promote --within 2h --class batch -- make -C docs`,
		Args: atLeast("command"),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, args []string) error {
			spec, err := s.spec(ctx, a, args)
			if err != nil {
				return err
			}
			if s.conditions() > 0 {
				return a.addTrigger(ctx, e, &s, spec)
			}
			j, err := job.New(e).Submit(spec)
			if err != nil {
				return err
			}
			return a.ui.say(shown(j), strconv.Itoa(j.Number))
		}),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	s.flags.add(cmd)
	s.flags.addProve(cmd)
	f := cmd.Flags()
	f.StringVar(&s.check, "check", "", "require this shell `command` to succeed after the command")
	f.BoolVar(&s.promote, "promote", false, "promote a result that passes, without approval")
	f.StringVar(&s.to, "to", "", "promote through the profile's stages, up to this `stage`")
	f.StringVar(&s.class, "class", string(job.Normal), "begin before jobs of a later `class`: urgent, normal or batch")
	f.StringSliceVar(&s.effects, "effects", nil, "declare the `effects` of the command: none, or of workspace, network, system")
	f.Var((*durationValue)(&s.timeout), "timeout", "end the command and its check after this `duration`")
	f.Var((*durationValue)(&s.within), "within", "fail the job if it has not begun within this `duration`")
	f.Var((*durationValue)(&s.trigger.Every), "every", "submit the job again and again, with this `duration` between")
	f.StringVar(&s.trigger.Changed, "when-changed", "", "submit the job whenever files that match this `pattern` have changed")
	f.BoolVar(&s.trigger.Webhook, "webhook", false, "submit the job for each request that is signed with the printed secret")
	f.SetInterspersed(false)
	return cmd
}

// conditions returns how many of the flags are set that say when a trigger submits the job: at intervals, at
// changes of a file, or by a webhook.
func (s *submission) conditions() (n int) {
	for _, set := range []bool{s.trigger.Every != 0, s.trigger.Changed != "", s.trigger.Webhook} {
		if set {
			n++
		}
	}
	return n
}

// spec returns the job that the command line of `snapfs job submit` describes.
func (s *submission) spec(ctx context.Context, a *app, args []string) (job.Spec, error) {
	switch {
	case s.conditions() > 1:
		return job.Spec{}, usageError(errors.New("--every, --when-changed and --webhook exclude one another"))
	case s.promote && s.to != "":
		return job.Spec{}, usageError(errors.New("--promote and --to exclude one another"))
	case s.timeout < 0 || s.within < 0:
		return job.Spec{}, usageError(errors.New("--timeout and --within must not be negative"))
	case !slices.Contains(job.Classes(), job.Class(s.class)):
		return job.Spec{}, usageError(fmt.Errorf("--class takes urgent, normal or batch, not %q", s.class))
	}
	req, dir, err := s.flags.request(ctx, a)
	if err != nil {
		return job.Spec{}, err
	}
	if req.Admission.Queue > 0 || req.Admission.IfRoom {
		return job.Spec{}, usageError(errors.New("a job always waits for capacity; --within bounds the wait"))
	}
	spec := job.Spec{
		Workspace: req.Workspace, Dir: dir, Command: args, Env: hostfs.Environ(os.Environ(), req.Policy.Env),
		Backend: req.Backend, Frozen: req.Frozen, Policy: req.Policy, Then: job.Hold, Class: job.Class(s.class), Timeout: s.timeout,
		Effects: s.effects,
	}
	if s.check != "" {
		spec.Check = inShell(s.check)
	}
	if s.promote {
		spec.Then = job.Promote
	}
	if s.to != "" {
		spec.Then, spec.Stage = job.Stages, s.to
		if s.flags.profile != "" && s.flags.profile != profile.None {
			if spec.Profile, err = absolute(s.flags.profile); err != nil {
				return spec, err
			}
		}
	}
	s.trigger.Within = s.within
	if s.within > 0 {
		spec.Deadline = time.Now().Add(s.within).UTC()
	}
	return spec, nil
}

func newJobWork(a *app) *cobra.Command {
	var once bool
	var jobs int
	cmd := &cobra.Command{
		Use:   "work",
		Short: "carry out jobs",
		Long: `Carries out queued jobs, the most urgent first, and those whose worker was killed, until it is
interrupted: a job that runs then is stopped and queued again. It also submits the jobs of triggers
that are due. Each job waits for capacity (snapfs help room), at most 24 hours or until its --within; then it fails.`,
		Example: "  snapfs job work --once\n  snapfs job work --jobs 8",
		Args:    exactly(),
		RunE: a.withEngine(func(ctx context.Context, e *engine.Engine, _ []string) error {
			if jobs < 0 {
				return usageError(errors.New("--jobs must not be negative"))
			}
			w := job.Worker{Store: job.New(e), Jobs: jobs, Once: once, Notify: func(j job.Job) { a.ui.notice("job " + jobLine(&j)) }}
			return w.Work(ctx)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&once, "once", false, "end when no job is left")
	cmd.Flags().IntVarP(&jobs, "jobs", "j", 0, "run at most this `many` jobs at once (default one for each processor)")
	return cmd
}

func newJobLs(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "list jobs",
		Long:    "Lists the jobs that have not ended, in the order of their numbers, or all stored ones.",
		Example: "  snapfs job ls --all",
		Args:    exactly(),
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, _ []string) error {
			jobs, err := job.New(e).List()
			jobs = slices.DeleteFunc(jobs, func(j job.Job) bool { return !all && j.State.Final() })
			for i := range jobs {
				jobs[i].Spec = jobs[i].Shown()
			}
			return errors.Join(a.ui.page(jobs, func(w io.Writer) error { return printJobs(w, jobs) }), err)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list also those that have ended")
	return cmd
}

func printJobs(w io.Writer, jobs []job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tSTATE\tCLASS\tAGE\tWORKSPACE\tCOMMAND")
	for _, j := range jobs {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", j.Number, j.State, j.Class, age(time.Since(j.Submitted)),
			pathlist.Printable(j.Workspace), tame(strings.Join(j.Command, " ")))
	}
	return t.Flush()
}

// shown returns the job j without the values of its variables.
func shown(j *job.Job) *job.Job {
	s := *j
	s.Spec = j.Shown()
	return &s
}

// jobLine describes a job in one line of text: its number, its state with the reason, and its promotion.
func jobLine(j *job.Job) string {
	line := fmt.Sprintf("%d %s", j.Number, j.State)
	if j.Why != "" {
		line += ": " + tame(j.Why)
	}
	if j.Promotion != "" {
		line += ", promoted as " + j.Promotion
	}
	return line
}

func newJobShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show job",
		Short: "show a job with the output of its command and check",
		Long: `Shows the state of a job, how its command and check ended, and the end of what they printed.
Commands to look at a result that waits, and to decide on it, follow as hints.`,
		Example: "  snapfs job show 3",
		Args:    exactly("job"),
		RunE: a.withEngine(func(_ context.Context, e *engine.Engine, args []string) error {
			numbers, err := jobNumbers(args)
			if err != nil {
				return err
			}
			s := job.New(e)
			j, err := s.Get(numbers[0])
			if err != nil {
				return err
			}
			if err := a.ui.result(shown(j), func(w io.Writer) error { return printJob(w, s, j) }); err != nil {
				return err
			}
			if j.State == job.Waiting {
				a.ui.hint("snapfs diff "+errs.Quoted(j.Sandbox)+" --patch",
					fmt.Sprintf("snapfs job approve %d", j.Number), fmt.Sprintf("snapfs job reject %d", j.Number))
			}
			return nil
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

// jobTail is how many bytes from the end of each output `snapfs job show` prints.
const jobTail = 4 << 10

func printJob(w io.Writer, s *job.Store, j *job.Job) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, tame(value))
		}
	}
	status := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	row("job", jobLine(j))
	row("command", strings.Join(j.Command, " "))
	row("check", strings.Join(j.Check, " "))
	row("workspace", j.Workspace)
	row("then", strings.TrimSpace(string(j.Then)+" "+j.Stage))
	row("submitted", j.Submitted.Local().Format(time.DateTime))
	if !j.Began.IsZero() {
		row("began", j.Began.Local().Format(time.DateTime)+", try "+strconv.Itoa(j.Tries))
	}
	row("exit status", status(j.Exit))
	row("check's status", status(j.Checked))
	row("sandbox", j.Sandbox)
	if j.Plan != "" {
		row("plan", j.Plan[:12]+", "+count(j.Changes, "step"))
	}
	row("decided by", j.Decided)
	row("effects", strings.Join(j.Effects, " "))
	row("no sandbox", j.Direct)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range []string{"out", "check"} {
		text := endOfFile(filepath.Join(s.OutputDir(j.Number), "1."+part), jobTail)
		for line := range strings.Lines(text) {
			fmt.Fprintln(w, "| "+tame(strings.TrimRight(line, "\n")))
		}
	}
	return nil
}

// endOfFile returns the last most bytes of the file of a job's output, or "" if it cannot be read.
func endOfFile(path string, most int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most)) // an error shortens the text
	return string(text)
}
