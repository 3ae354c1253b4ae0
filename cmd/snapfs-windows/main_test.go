package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The real wsl.exe is only where Windows is. Here this program is both: snapfs.exe by one
// name, and by another a wsl.exe that tells what it was asked for.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "snapfs.exe":
		main()
	case "wsl.exe":
		os.Exit(standIn(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// standIn has the programs of STAND_IN_HAS, and a snapfs that writes its arguments, then
// its input to the error stream, and ends with STAND_IN_STATUS, or by its signal with 43.
func standIn(args []string) int {
	if i := slices.Index(args, "sh"); i >= 0 && args[i-1] == "--exec" {
		if slices.Contains(strings.Fields(os.Getenv("STAND_IN_HAS")), strings.TrimPrefix(args[i+2], "command -v ")) {
			return 0
		}
		return 1
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Printf("%q\n", args)
	if os.Getenv("STAND_IN_WAITS") != "" {
		<-asked
		return 43
	}
	if _, err := io.Copy(os.Stderr, os.Stdin); err != nil {
		return 99
	}
	status, _ := strconv.Atoi(os.Getenv("STAND_IN_STATUS"))
	return status
}

// program is snapfs.exe with a PATH of its own, in which wsl.exe is or is not.
func program(t *testing.T, withWSL bool, env, args []string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names := []string{"snapfs.exe"}
	if withWSL {
		names = append(names, "wsl.exe")
	}
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "snapfs.exe"), args...)
	cmd.Env = append([]string{"PATH=" + dir, `SNAPFS_WINDOWS_DIR=C:\Users\ada`}, env...)
	return cmd
}

func TestTheCommandGoesToTheDistributionWithItsStreamsAndItsStatus(t *testing.T) {
	env := []string{"SNAPFS_WSL=Ubuntu", "STAND_IN_STATUS=5", "STAND_IN_HAS=sh snapfs"}
	cmd := program(t, true, env, []string{"run", `--hide=D:\keys`, "-C", `C:\work`, "--", "sh", "-c", `echo "a b" C:\x`})
	cmd.Stdin = strings.NewReader("what is typed\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("status %d, %v", code, err)
	}
	want := fmt.Sprintf("%q\n", []string{
		"-d", "Ubuntu", "--cd", "/mnt/c/Users/ada", "--exec", "snapfs",
		"run", "--hide=/mnt/d/keys", "-C", "/mnt/c/work", "--", "sh", "-c", `echo "a b" C:\x`,
	})
	if out.String() != want {
		t.Errorf("wsl.exe got\n%snot\n%s", &out, want)
	}
	if errs.String() != "what is typed\n" {
		t.Errorf("the error stream has %q", &errs)
	}
}

func TestADirectoryOfADistributionChoosesIt(t *testing.T) {
	cmd := program(t, true, []string{`SNAPFS_WINDOWS_DIR=\\wsl$\Debian\home\ada`}, []string{"ls"})
	out, err := cmd.Output()
	if want := fmt.Sprintf("%q\n", []string{"-d", "Debian", "--cd", "/home/ada", "--exec", "snapfs", "ls"}); err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
}

func TestWhatIsMissingIsSaidWithItsMend(t *testing.T) {
	for name, c := range map[string]struct {
		wsl    bool
		env    string
		args   []string
		status int
		says   []string
	}{
		"no WSL":          {false, "A=", []string{"ls"}, exitMissing, []string{"no Windows Subsystem for Linux", "hint: wsl --install"}},
		"no snapfs":       {true, "STAND_IN_HAS=sh", []string{"ls"}, exitMissing, []string{"not installed in the default distribution", "hint: in the distribution, in a checkout of snapfs: make build && sudo make install"}},
		"no distribution": {true, "STAND_IN_HAS=", []string{"ls"}, exitMissing, []string{"cannot be started", "hint: wsl --list --verbose"}},
		"out of reach":    {true, "A=", []string{"run", "-C", `\\server\x`, "--", "true"}, exitFailed, []string{"another machine", "hint: wsl sudo mount -t drvfs"}},
	} {
		cmd := program(t, c.wsl, []string{c.env, "STAND_IN_STATUS=127"}, c.args)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run() // its status is looked at
		if code := cmd.ProcessState.ExitCode(); code != c.status {
			t.Errorf("%s: status %d", name, code)
		}
		for _, text := range c.says {
			if !strings.Contains(errs.String(), text) {
				t.Errorf("%s: %q is not in\n%s", name, text, &errs)
			}
		}
	}
}

// A status of snapfs is passed on, whatever it is, and nothing is added to what it said.
func TestAStatusOfSnapfsIsItsOwn(t *testing.T) {
	for _, status := range []int{1, 126, 127, 255} {
		cmd := program(t, true, []string{"STAND_IN_HAS=sh snapfs", "STAND_IN_STATUS=" + strconv.Itoa(status)}, []string{"ls"})
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run() // its status is looked at
		if code := cmd.ProcessState.ExitCode(); code != status || errs.Len() > 0 {
			t.Errorf("status %d for %d, and %q", code, status, &errs)
		}
	}
}

func TestARequestToEndIsPassedOn(t *testing.T) {
	cmd := program(t, true, []string{"STAND_IN_WAITS=1", "STAND_IN_HAS=sh snapfs"}, []string{"ls"})
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Error(err)
	}
	// ctrl-c goes to both from the console: this one must outlive it.
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Error(err)
		}
	}
	_ = cmd.Wait() // its status is looked at
	if code := cmd.ProcessState.ExitCode(); code != 43 {
		t.Errorf("status %d", code)
	}
}

func TestANameOfTheDistributionIsToldToWindows(t *testing.T) {
	out, err := program(t, false, []string{"SNAPFS_WSL=Ubuntu"}, []string{"--to-windows", "/home/ada"}).Output()
	if want := `\\wsl.localhost\Ubuntu\home\ada` + "\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
}
