//go:build linux

package pool_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestAPoolGrowsWhileInUse(t *testing.T) {
	_, p, tree := made(t)
	_, err := p.Import(t.Context(), tree, nil)
	must(t, err)
	before, err := p.Status()
	must(t, err)
	must(t, p.Grow(t.Context(), 1<<30))
	after, err := p.Status()
	must(t, err)
	if after.Size != 1<<30 || after.Free < before.Free+400<<20 || after.OnDisk > 100<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if err := p.Grow(t.Context(), 512<<20); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("shrinking: %v", err)
	}
	same(t, tree, copyOf(t, p), "after growing")
}

func TestInvalidPoolsAreRefused(t *testing.T) {
	dir, p, tree := made(t)
	for name, err := range map[string]error{
		"taken":    second(pool.Create(t.Context(), dir, "p", 512<<20)),
		"bad name": second(pool.Create(t.Context(), dir, "../q", 512<<20)),
		"small":    second(pool.Create(t.Context(), dir, "q", 1<<20)),
		"a file":   second(p.Import(t.Context(), tree+"/linked", nil)),
		"missing":  second(p.Import(t.Context(), tree+"/no", nil)),
		"relative": second(p.Import(t.Context(), "work", nil)),
		"unknown":  second(p.Unadopt(t.Context(), tree, nil)),
	} {
		var e *errs.Error
		if !errors.As(err, &e) || e.Kind == nil || e.Op == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pools, err := pool.List(dir); err != nil || len(pools) != 1 {
		t.Errorf("%q, %v", pools, err)
	}
}

func second[T any](_ T, err error) error { return err }

// A file that keeps changing is reported, or copied when it is at rest. The next import after it is
// at rest has its content.
func TestAFileThatKeepsChangingIsReported(t *testing.T) {
	_, p, tree := made(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if err := os.WriteFile(tree+"/busy", []byte(strconv.Itoa(i)), 0o644); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	rest := sync.OnceFunc(func() { close(stop); <-done })
	defer rest()
	for range 5 {
		_, err := p.Import(t.Context(), tree, nil)
		must(t, err)
	}
	rest()
	_, err := p.Import(t.Context(), tree, nil)
	must(t, err)
	same(t, tree, copyOf(t, p), "at rest")
}

// BenchmarkUnchangedImport measures the walk of an unchanged workspace.
func BenchmarkUnchangedImport(b *testing.B) {
	_, p, tree := made(b)
	for i := range 20_000 {
		write(b, tree+"/many/"+strconv.Itoa(i%200)+"/"+strconv.Itoa(i), "x")
	}
	_, err := p.Import(b.Context(), tree, nil)
	must(b, err)
	for b.Loop() {
		r, err := p.Import(b.Context(), tree, nil)
		must(b, err)
		if r.Copied > 0 {
			b.Fatalf("%+v", r)
		}
	}
}

func TestAnOrdinaryUserLearnsThatAPoolNeedsRoot(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	_, err := pool.Create(t.Context(), t.TempDir(), "p", 512<<20)
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrDenied) || len(e.Hints) == 0 {
		t.Errorf("%#v", err)
	}
}

// TestAPoolIsCreatedWhileTheLastOneIsRemoved: removing the last pool deletes the directory of pools, at any
// moment before a new pool is in it.
func TestAPoolIsCreatedWhileTheLastOneIsRemoved(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "btrfs")
	dir := filepath.Join(treetest.Dir(t), "pools")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	removed, stopped := 0, make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	var removing sync.WaitGroup
	ctx := treetest.WithFaults(t.Context(), func(step string) error {
		switch step {
		case "make the image":
			if err := os.Remove(dir); err != nil {
				return err
			}
			removing.Go(func() {
				for {
					select {
					case <-stopped:
						return
					default:
						if os.Remove(dir) == nil {
							removed++
						}
					}
				}
			})
		case "name the pool":
			stop()
		}
		return nil
	})
	_, err := pool.Create(ctx, dir, "p", 512<<20)
	stop()
	if err == nil {
		err = pool.Remove(t.Context(), dir, "p")
	}
	removing.Wait()
	if err != nil {
		t.Errorf("after its directory was removed %d times: %v", 1+removed, err)
	}
}
