//go:build linux

package isolate

import (
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate/landlock"
	"github.com/snapfs/snapfs/isolate/launch"
	"github.com/snapfs/snapfs/isolate/stub"
)

// domains are pid 1's descriptors, as cells of its image, of the Landlock rulesets that commands enter if the container
// has guarded programs; 0 otherwise. The processes of a command in the ruleset guarded can execute the guarded programs,
// too. Each command has a domain of its own, so none of its processes can be traced by those of another.
type domains struct{ ordinary, guarded launch.Cell }

// allowPaths adds the system calls that let the container execute, write and read only what its spec lists, by Landlock.
// With guarded programs pid 1 itself stays outside of these limits, and each command enters them (see
// [builder.confine]).
func (b *builder) allowPaths() {
	rules := b.spec.landlock()
	if len(b.spec.Guarded) > 0 {
		b.guardedDomains(rules)
		return
	}
	rules.Restrict(b.Image)
}

// guardedDomains adds the system calls by which pid 1 creates both rulesets: that of ordinary commands with rules, in
// which only the stubs can be executed at the paths of guarded programs, and that of guarded programs.
func (b *builder) guardedDomains(rules landlock.Rules) {
	rules.Execute = slices.Concat(rules.Execute, b.spec.Guarded)
	b.p1.domains.ordinary = rules.Add(b.Image)
	var programs []launch.Cell
	for _, fd := range b.GuardedFDs() {
		programs = append(programs, b.NewCell(int32(fd)))
	}
	b.p1.domains.guarded = rules.Add(b.Image, programs...)
}

// guardedFD returns pid 1's descriptor of the guarded program at path.
func (b *builder) guardedFD(path string) int {
	return b.GuardedFDs()[slices.Index(b.spec.Guarded, path)]
}

// dirFD is the descriptor of its working directory that the process of a guarded program has until it executes it.
const dirFD = 3

// confine adds the system calls by which the process of the command c enters the Landlock domain of the command, unless
// pid 1 is in it already, and closes the descriptors that it does not need. dir is the cell with the descriptor of the
// working directory of a guarded program.
func (b *builder) confine(c Command, dir launch.Cell) {
	domain := b.p1.domains.ordinary
	if c.Guarded != "" {
		domain = b.p1.domains.guarded
	}
	if domain != 0 {
		b.Stage = "entering a Landlock domain"
		b.Do(unix.SYS_LANDLOCK_RESTRICT_SELF, b.Of(domain), launch.Num(0))
		b.Stage = "starting the command"
	}
	first := dirFD
	if c.Guarded != "" {
		b.Do(unix.SYS_DUP3, b.Of(dir), launch.Num(dirFD), launch.Num(unix.O_CLOEXEC)).Tolerate(unix.EINVAL)
		program := b.guardedFD(c.Guarded)
		b.Do(unix.SYS_CLOSE_RANGE, launch.Num(dirFD+1), launch.Num(program-1), launch.Num(0))
		first = program + 1
	}
	b.Do(unix.SYS_CLOSE_RANGE, launch.Num(first), launch.Num(^uint32(0)), launch.Num(0))
}

// executeGuarded adds the system call by which a process executes the guarded program of the command c, from pid 1's
// descriptor, because the stub covers the path. A script cannot be executed so (ENOENT).
func (b *builder) executeGuarded(c Command, argv, envp launch.Arg, l execResult) execResult {
	try := b.NewCell(0)
	b.Do(unix.SYS_EXECVEAT, launch.Num(b.guardedFD(c.Guarded)), b.Str(""), argv, envp, launch.Num(unix.AT_EMPTY_PATH)).To(try).IgnoreErrors()
	l.tries, l.paths, l.looks = []launch.Cell{try}, []string{c.Guarded}, []launch.Cell{0}
	return l
}

// ListenForGuarded opens the socket in the container to which the stubs of guarded programs connect; the caller accepts
// the connections and closes it. It is called once, before the first command. Errors: those of [Container.Notify].
func (c *Container) ListenForGuarded() (socket *fdsock.Conn, err error) {
	err = c.inNotes(func(dir *os.File) error {
		const all = 0o666
		if socket, err = fdsock.Listen("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + stub.SocketName); err != nil {
			return err
		}
		if err = unix.Fchmodat(int(dir.Fd()), stub.SocketName, all, 0); err != nil {
			return errors.Join(err, socket.Close())
		}
		return nil
	})
	return socket, err
}
