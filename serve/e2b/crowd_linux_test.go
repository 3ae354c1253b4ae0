package e2b_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// TestManyClientsOfOneSandbox: they run commands, change files, watch, pause and resume at once, and one removes the
// sandbox in the middle. Each request gets a result or a reason, and nothing is left. Cost: two seconds.
func TestManyClientsOfOneSandbox(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(M{"autoPause": true, "autoResume": M{"enabled": true}})
	path := "/sandboxes/" + s.SandboxID
	rounds := treetest.Budget(t, 6, 60)
	ctx := t.Context()
	expected := func(err error, codes ...connect.Code) {
		t.Helper()
		for _, c := range append(codes, connect.CodeUnavailable, connect.CodeNotFound, connect.CodePermissionDenied) {
			if err == nil || connect.CodeOf(err) == c {
				return
			}
		}
		t.Error(err)
	}
	plain := func(method, path string, body any, headers ...string) {
		t.Helper()
		reply, data := d.request(method, path, body, headers...)
		switch reply.StatusCode {
		case http.StatusOK, http.StatusCreated, http.StatusNoContent, http.StatusNotFound, http.StatusConflict, http.StatusBadGateway, http.StatusForbidden:
		default:
			t.Errorf("%s %s: %d %s", method, path, reply.StatusCode, data)
		}
	}
	clients := []func(n int){
		func(n int) {
			r, err := s.run(shell(fmt.Sprintf("echo %d", n)))
			if expected(err); err == nil && r.end.GetExited() && r.stdout != fmt.Sprintln(n) {
				t.Errorf("%+v", r)
			}
		},
		func(n int) {
			plain(http.MethodPost, fmt.Sprintf("/files?path=d%d/f", n), "text", s.headers()...)
		},
		func(int) {
			_, err := s.files.ListDir(ctx, &envd.ListDirRequest{Path: ".", Depth: 3})
			expected(err)
		},
		func(int) {
			w, err := s.files.CreateWatcher(ctx, &envd.CreateWatcherRequest{Path: ".", Recursive: true})
			expected(err, connect.CodeInvalidArgument)
			if err == nil {
				_, err = s.files.RemoveWatcher(ctx, &envd.RemoveWatcherRequest{WatcherId: w.WatcherId})
				expected(err)
			}
		},
		func(int) { plain(http.MethodPost, path+"/pause", nil) },
		func(int) { plain(http.MethodPost, "/v2"+path+"/connect", M{"timeout": 100}) },
		func(int) { plain(http.MethodPost, path+"/timeout", M{"timeout": 100}) },
		func(int) { plain(http.MethodPost, path+"/fork", M{}) },
		func(int) { plain(http.MethodGet, path+"/metrics", nil) },
		func(int) {
			_, err := s.process.List(ctx, &envd.ListRequest{})
			expected(err)
		},
	}
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for n := range rounds {
				c(n)
			}
		})
	}
	all.Go(func() {
		for range rounds / 2 {
			_, err := s.run(shell("true"))
			expected(err)
		}
		for {
			reply, data := d.request(http.MethodDelete, path, nil)
			if reply.StatusCode == http.StatusNoContent {
				return
			}
			if reply.StatusCode != http.StatusConflict { // a fork or a change of limits is under way
				t.Error(errors.New(string(data)))
				return
			}
		}
	})
	all.Wait()
	d.refuses(http.StatusNotFound, "was not found", http.MethodGet, path, nil)
}
