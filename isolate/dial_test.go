package isolate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
)

// served runs a server in the container that sends who to each client, and waits until it listens.
func served(t *testing.T, container *Container, at, who string) {
	t.Helper()
	install(t, container)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = container.Exec(t.Context(), Command{
		Args: []string{visitorProgram}, Dir: "/", Stdout: w, Stderr: w,
		Env: []string{"SNAPFS_TEST_AS=visitor", "WHAT=serve", "TO=" + at, "WHO=" + who},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// serve is the server of served, inside the container.
func serve(at string) (string, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stdout, "up")
	for {
		conn, err := l.Accept()
		if err != nil {
			return "", err
		}
		_, err = io.WriteString(conn, os.Getenv("WHO"))
		if err := errors.Join(err, conn.Close()); err != nil {
			return "", err
		}
	}
}

func dialled(t *testing.T, container *Container, port uint16) string {
	t.Helper()
	conn, at, err := container.Dial(t.Context(), port)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	said, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return at.String() + " " + string(said)
}

// Dial reaches the servers of its own container and of no other, also while commands start.
func TestDialReachesServersInside(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		one, two := open(t, spec), open(t, renewed(t, spec))
		served(t, one, "127.0.0.1:5432", "one")
		served(t, two, "[::1]:5432", "two")
		if got := dialled(t, two, 5432); got != "::1 two" {
			t.Error(got)
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got := dialled(t, one, 5432); got != "127.0.0.1 one" {
					t.Error(got)
				}
			})
			all.Go(func() {
				if out, _ := output(t, one, shell("echo fine")); strings.TrimSpace(out) != "fine" {
					t.Error(out)
				}
			})
		}
		all.Wait()
		if _, _, err := one.Dial(t.Context(), 5433); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		if err := one.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := one.Dial(t.Context(), 5432); !errors.Is(err, errs.ErrBusy) {
			t.Error(err)
		}
		if err := one.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := one.Dial(t.Context(), 5432); !errors.Is(err, errs.ErrClosed) {
			t.Error(err)
		}
	})
}

// A server that accepts no more connections does not block a Dial whose context ends.
func TestDialEndsWithItsContext(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		install(t, container)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, err = container.Exec(t.Context(), Command{
			Args: []string{visitorProgram}, Dir: "/", Stdout: w, Stderr: w,
			Env: []string{"SNAPFS_TEST_AS=visitor", "WHAT=deaf"},
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(r).ReadString('\n'); line != "up\n" {
			t.Fatalf("%q, %v", line, err)
		}
		for range 5 { // the listen queue takes the first few
			ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
			conn, _, err := container.Dial(ctx, 5432)
			stop()
			if err == nil {
				defer conn.Close()
			} else if errors.Is(err, errs.ErrInterrupted) {
				return
			} else {
				t.Fatal(err)
			}
		}
		t.Error("every connection was accepted")
	})
}

func deaf() (string, error) {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(s, &syscall.SockaddrInet4{Port: 5432, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.Listen(s, 0)
	}
	if err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stdout, "up")
	time.Sleep(time.Minute) // until the container ends
	return "", nil
}
