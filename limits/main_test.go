package limits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
)

// TestMain makes the test binary act as programs that exceed limits.
func TestMain(m *testing.M) {
	role := os.Getenv("SNAPFS_TEST_AS")
	if role == "" {
		os.Exit(m.Run())
	}
	// The program waits until it is in its group.
	if line, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil || line != "go\n" {
		os.Exit(3)
	}
	switch name, arg, _ := strings.Cut(role, " "); name {
	case "sleep":
		time.Sleep(time.Hour)
	case "hog":
		hog(arg)
	case "fork":
		forkMany(arg)
	case "spin":
		for {
			spin(time.Second)
		}
	case "twice":
		twice(arg)
	case "memfd":
		memfd(arg)
	case "datagrams":
		datagrams(arg)
	case "thread":
		thread(arg)
	case "write", "read":
		disk(name, arg)
	case "look":
		again("looked", &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWCGROUP})
	case "looked":
		looked()
	case "open":
		openMany()
	case "supervisor":
		supervise()
	case "namespaced":
		must0(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must0(unix.Mount("proc", "/proc", "proc", 0, ""))
		supervise()
	case "delegated":
		os.Exit(m.Run())
	}
}

// memfd writes that many bytes to a file in memory, opens it twice, and maps it.
func memfd(bytes string) {
	n, _ := strconv.Atoi(bytes)
	fd, err := unix.MemfdCreate("test", 0)
	must0(err)
	for at := 0; at < n; at += 1 << 20 {
		_, err := unix.Pwrite(fd, make([]byte, min(1<<20, n-at)), int64(at))
		must0(err)
	}
	_, err = unix.Dup(fd)
	must0(err)
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	must0(err)
	runtime.GC()
	fmt.Fprintln(os.Stdout, "written")
	time.Sleep(time.Hour)
	runtime.KeepAlive(b)
}

// datagrams sends itself that many bytes, then receives and counts those that were stored meanwhile.
func datagrams(bytes string) {
	n, _ := strconv.Atoi(bytes)
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must0(err)
	raw, err := conn.SyscallConn()
	must0(err)
	must0(raw.Control(func(fd uintptr) { must0(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 2*n)) }))
	part := make([]byte, 60_000)
	for sent := 0; sent < n; sent += len(part) {
		_, _ = conn.WriteTo(part, conn.LocalAddr()) // ENOBUFS at the limit
	}
	stored := 0
	must0(conn.SetReadDeadline(time.Now().Add(time.Second)))
	for {
		got, err := conn.Read(part)
		if stored += got; err != nil {
			break
		}
	}
	fmt.Fprintln(os.Stdout, "stored", stored)
}

// The variable is initialised on the first thread of the process.
var _ = lockFirstThread()

// lockFirstThread keeps TestMain on the first thread of the process, in the role that ends that thread.
func lockFirstThread() bool {
	role := strings.HasPrefix(os.Getenv("SNAPFS_TEST_AS"), "thread ")
	if role {
		runtime.LockOSThread()
	}
	return role
}

// thread takes that many bytes, and writes as many to a file in memory that only one thread has open. Before
// that, the first thread of the process ends.
func thread(bytes string) {
	go func() {
		runtime.LockOSThread()
		ended := func() (bool, error) {
			stat, err := os.ReadFile("/proc/self/stat")
			return strings.Contains(string(stat), ") Z "), err
		}
		must0(poll.Until(context.Background(), time.Millisecond, 10*time.Millisecond, ended))
		must0(unix.Unshare(unix.CLONE_FILES))
		n, _ := strconv.Atoi(bytes)
		fd, err := unix.MemfdCreate("test", 0)
		must0(err)
		for at := 0; at < n; at += 1 << 20 {
			_, err := unix.Pwrite(fd, make([]byte, min(1<<20, n-at)), int64(at))
			must0(err)
		}
		hog(bytes)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // the first thread alone
}

// hog takes that many bytes.
func hog(bytes string) {
	n, _ := strconv.Atoi(bytes)
	var all [][]byte
	for taken := 0; taken < n; taken += 1 << 20 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	fmt.Fprintln(os.Stdout, "took", len(all))
	time.Sleep(time.Hour)
}

// forkMany starts processes until one is refused, at most that many.
func forkMany(most string) {
	n, _ := strconv.Atoi(most)
	for i := range n {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			fmt.Fprintln(os.Stdout, "refused", i, errno)
			time.Sleep(time.Hour)
		}
		if pid == 0 {
			for {
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // forever
			}
		}
	}
	fmt.Fprintln(os.Stdout, "started", n)
	time.Sleep(time.Hour)
}

// twice starts a child in a session of its own, then takes memory.
func twice(bytes string) {
	again("sleep", &unix.SysProcAttr{Setsid: true})
	hog(bytes)
}

// again starts this program in another role.
func again(role string, attr *unix.SysProcAttr) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "SNAPFS_TEST_AS="+role)
	c.SysProcAttr, c.Stdout, c.Stderr = attr, os.Stdout, os.Stderr
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = io.WriteString(in, "go\n")
	}
	must0(err)
	if role == "looked" {
		fmt.Fprintln(os.Stdout, "ended", c.Wait())
	}
}

func must0(err error) {
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
}

// looked prints the directories of its own groups.
func looked() {
	found, err := hierarchies()
	fmt.Fprintln(os.Stdout, len(found), err)
	for _, h := range found {
		fmt.Fprintln(os.Stdout, h.own)
	}
}

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		for i := range 1000 {
			_ = i * i
		}
	}
}

// disk writes or reads a file past the page cache, 1 MiB at a time, forever.
func disk(what, path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	block, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	for at := int64(0); err == nil; at = (at + 1<<20) % (8 << 20) {
		if what == "write" {
			_, err = f.WriteAt(block, at)
		} else {
			_, err = f.ReadAt(block, at)
		}
		fmt.Fprintln(os.Stdout, what, err)
	}
}

// openMany opens files until one is refused.
func openMany() {
	for i := range 10000 {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			fmt.Fprintln(os.Stdout, "refused", i, err)
			return
		}
	}
	fmt.Fprintln(os.Stdout, "never refused")
}

// child is a process under test and its output.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan string
	done chan struct{}
}

// newChild starts a process in a role, in the groups of g, and attaches it; the process waits for begin. attr
// may add namespaces.
func newChild(t *testing.T, g *Group, role string, attr *unix.SysProcAttr) *child {
	t.Helper()
	b := &child{t: t, cmd: exec.Command("/proc/self/exe"), said: make(chan string, 1000), done: make(chan struct{})}
	b.cmd.Env = append(os.Environ(), "SNAPFS_TEST_AS="+role, "GOMAXPROCS=2")
	b.cmd.SysProcAttr = attr
	in, err := b.cmd.StdinPipe()
	must(t, err)
	b.in = in
	out, w, err := os.Pipe()
	must(t, err)
	b.cmd.Stdout, b.cmd.Stderr = w, w
	must(t, b.cmd.Start())
	w.Close()
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case b.said <- lines.Text():
			default:
			}
		}
		out.Close()
		close(b.said)
	}()
	go func() {
		b.cmd.ProcessState, _ = b.cmd.Process.Wait()
		close(b.done)
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		<-b.done
		_ = in.Close()
	})
	pid := b.cmd.Process.Pid
	for _, dir := range g.Cgroups() {
		must(t, vfs.WriteFile(dir.Name()+"/cgroup.procs", strconv.Itoa(pid)))
	}
	for _, r := range g.Rlimits() {
		must(t, unix.Prlimit(pid, r.Resource, &unix.Rlimit{Cur: r.Cur, Max: r.Max}, nil))
	}
	must(t, g.Attach(pid))
	return b
}

// begin lets the process run. A group without CPU time left may have killed it already.
func (b *child) begin() *child {
	b.t.Helper()
	if _, err := io.WriteString(b.in, "go\n"); !errors.Is(err, unix.EPIPE) {
		must(b.t, err)
	}
	return b
}

// line returns the next line of output.
func (b *child) line() string {
	b.t.Helper()
	select {
	case s := <-b.said:
		return s
	case <-time.After(slow(10 * time.Second)):
		b.t.Fatal("the process prints nothing")
		return ""
	}
}

// ends waits until the process has ended.
func (b *child) ends() {
	b.t.Helper()
	select {
	case <-b.done:
	case <-time.After(slow(10 * time.Second)):
		b.t.Fatal("the process does not end")
	}
}

// started creates a group and checks at the end of the test that it was closed.
func started(t *testing.T, l Limits, o Options) *Group {
	t.Helper()
	g, err := Start(t.Context(), "sandbox", l, o)
	must(t, err)
	t.Cleanup(func() { // if the test failed before
		ctx := context.Background()
		if !g.closed {
			t.Error("not closed", g.kill(ctx), g.Close(ctx))
		}
	})
	return g
}

// closes kills the processes and closes the group; nothing of it may be left.
func closes(t *testing.T, g *Group) {
	t.Helper()
	paths := make([]string, 0, len(g.members))
	for _, m := range g.members {
		paths = append(paths, m.path)
	}
	must(t, g.kill(t.Context()))
	must(t, g.Close(t.Context()))
	must(t, g.Close(t.Context()))
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			t.Error("left:", path)
		}
	}
	for _, path := range paths {
		if dir := filepath.Dir(path); filepath.Base(dir) == parent {
			staysForOthers(t, dir)
		}
	}
}

// staysForOthers checks that the directory of all supervisors' groups is gone, unless another supervisor has a
// group in it now.
func staysForOthers(t *testing.T, dir string) {
	t.Helper()
	for range 100 {
		list, err := os.ReadDir(dir)
		if err != nil || slices.ContainsFunc(list, fs.DirEntry.IsDir) {
			return
		}
		time.Sleep(10 * time.Millisecond) // another supervisor may be about to create one
	}
	t.Error("left:", dir)
}

// hitBy waits until the group has noticed by itself that this limit was hit. It must be equal to LimitHit.
func hitBy(t *testing.T, g *Group, part Part) LimitHit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slow(10*time.Second))
	defer cancel()
	var c LimitHit
	must(t, poll.Until(ctx, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		i := slices.IndexFunc(g.counts.hits, func(hit LimitHit) bool { return hit.Part == part })
		if i >= 0 {
			c = g.counts.hits[i]
		}
		return i >= 0, nil
	}))
	if got, ok := g.LimitHit(); !ok || got != c {
		t.Errorf("LimitHit returns %+v %v, noticed was %+v", got, ok, c)
	}
	return c
}

// held returns how a limit is enforced.
func held(g *Group, part Part) By {
	for _, h := range g.Level() {
		if h.Part == part {
			return h.By
		}
	}
	return ""
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// slow increases a time limit for emulated machines.
func slow(d time.Duration) time.Duration { return 6 * d }

// supervise creates a group with a process in it, prints its directories, and waits to be killed.
func supervise() {
	g, err := Start(context.Background(), "dead", Limits{PIDs: 100}, Options{})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "SNAPFS_TEST_AS=sleep")
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	for _, dir := range g.Cgroups() {
		err = errors.Join(err, vfs.WriteFile(dir.Name()+"/cgroup.procs", strconv.Itoa(c.Process.Pid)))
	}
	if err == nil {
		_, err = io.WriteString(in, "go\n")
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	var names []string
	for _, dir := range g.Cgroups() {
		names = append(names, dir.Name())
	}
	fmt.Fprintln(os.Stdout, c.Process.Pid, strings.Join(names, " "))
	time.Sleep(time.Hour)
}
