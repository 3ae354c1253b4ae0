package e2b_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/e2b"
)

// TestASandboxLivesAsItsClientSays: as root and as an ordinary user. Cost: a second each.
func TestASandboxLivesAsItsClientSays(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Run("root", lives)
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			lives(t)
		}
	})
}

func lives(t *testing.T) {
	d := newDesk(t)
	s := d.create(M{"templateID": "base", "timeout": 100, "metadata": M{"key": "a b"}, "envVars": M{"FOO": "bar"}})
	if got := s.sh("echo $FOO $E2B_SANDBOX_ID; pwd; cat a; echo inside > a"); got != "bar "+s.SandboxID+"\n"+d.work+"\nreal" {
		t.Errorf("the first command printed %q", got)
	}
	if data, err := os.ReadFile(filepath.Join(d.work, "a")); err != nil || string(data) != "real" {
		t.Errorf("the real file: %q, %v", data, err)
	}
	var info struct {
		State          string
		EndAt          time.Time
		Metadata       M
		CPUCount       int
		Lifecycle      M
		MemoryMB       int64
		StartedAt      time.Time
		EnvdAcessToken string
	}
	path := "/sandboxes/" + s.SandboxID
	left := func() time.Duration {
		t.Helper()
		d.do(http.StatusOK, http.MethodGet, path, nil, &info)
		return time.Until(info.EndAt)
	}
	if got := left(); got < 90*time.Second || got > 100*time.Second || info.State != "running" || info.Metadata["key"] != "a b" || info.CPUCount == 0 || info.MemoryMB == 0 || info.Lifecycle["onTimeout"] != "kill" {
		t.Errorf("%v left: %+v", got, info)
	}
	d.do(http.StatusNoContent, http.MethodPost, path+"/timeout", M{"timeout": 30}, nil)
	if got := left(); got > 30*time.Second || got < 20*time.Second {
		t.Errorf("after timeout: %v left", got)
	}
	d.do(http.StatusOK, http.MethodPost, "/v2"+path+"/connect", M{"timeout": 10}, nil)
	if got := left(); got < 20*time.Second {
		t.Errorf("a connect with a shorter time-out leaves %v", got)
	}
	d.do(http.StatusOK, http.MethodPost, "/v2"+path+"/connect", M{"timeout": 60}, nil)
	if got := left(); got < 50*time.Second {
		t.Errorf("a connect with a longer time-out leaves %v", got)
	}
	pid, next, stop := s.begin(shell("read x < <(sleep 0.3; echo y); echo $x"))
	defer stop()
	d.do(http.StatusNoContent, http.MethodPost, path+"/pause", M{}, nil)
	d.refuses(http.StatusConflict, "paused", http.MethodPost, path+"/pause", M{})
	d.refuses(http.StatusConflict, "paused", http.MethodPost, path+"/timeout", M{"timeout": 5})
	d.refuses(http.StatusBadGateway, "was not found", http.MethodGet, "/health", nil, s.headers()...)
	d.refuses(http.StatusBadGateway, "was not found", http.MethodGet, "/files?path=a", nil, s.headers()...)
	if left(); info.State != "paused" {
		t.Errorf("a paused sandbox is %+v", info)
	}
	d.do(http.StatusCreated, http.MethodPost, "/v2"+path+"/connect", M{"timeout": 60}, nil)
	d.do(http.StatusNoContent, http.MethodGet, "/health", nil, nil, s.headers()...)
	r := result{pid: pid}
	for e := next(); e != nil; e = next() {
		r.gather(e)
	}
	if r.stdout != "y\n" || r.end.GetExitCode() != 0 {
		t.Errorf("a command that was paused: %+v", r)
	}
	var metrics []struct {
		CPUCount int
		MemTotal int64
	}
	if d.do(http.StatusOK, http.MethodGet, path+"/metrics", nil, &metrics); len(metrics) != 1 || metrics[0].CPUCount == 0 || metrics[0].MemTotal == 0 {
		t.Errorf("metrics: %+v", metrics)
	}
	d.do(http.StatusNoContent, http.MethodDelete, path, nil, nil)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		d.refuses(http.StatusNotFound, "was not found", method, path, nil)
	}
	d.refuses(http.StatusBadGateway, "was not found", http.MethodGet, "/health", nil, s.headers()...)
}

// TestAPauseAndAResumeInARow: the processes go on, however soon the resume follows. Cost: half a second.
func TestAPauseAndAResumeInARow(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(nil)
	_, _, stop := s.begin(shell("sleep 1000"))
	defer stop()
	for n := range treetest.Budget(t, 30, 300) {
		d.do(http.StatusNoContent, http.MethodPost, "/sandboxes/"+s.SandboxID+"/pause", nil, nil)
		for range n % 15 { // until the supervisor looks at the limits again
			d.do(http.StatusOK, http.MethodGet, "/sandboxes/"+s.SandboxID, nil, nil)
		}
		d.do(http.StatusCreated, http.MethodPost, "/v2/sandboxes/"+s.SandboxID+"/connect", M{"timeout": 100}, nil)
		for range 2 { // the pause may come late
			s.sh("true")
		}
	}
}

// TestListsArePagedAndSelected costs half a second.
func TestListsArePagedAndSelected(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	var made []string
	for _, colour := range []string{"red", "blue", "red", "red"} {
		made = append(made, d.create(M{"metadata": M{"colour": colour}}).SandboxID)
	}
	d.do(http.StatusNoContent, http.MethodPost, "/sandboxes/"+made[3]+"/pause", nil, nil)
	get := func(query string) (ids []string, next string) {
		t.Helper()
		var list []struct{ SandboxID string }
		h := d.do(http.StatusOK, http.MethodGet, "/v2/sandboxes?"+query, nil, &list)
		for _, s := range list {
			ids = append(ids, s.SandboxID)
		}
		return ids, h.Get("X-Next-Token")
	}
	for query, want := range map[string][]string{
		"order=asc":                             made,
		"":                                      {made[3], made[2], made[1], made[0]},
		"order=asc&metadata=colour%3Dred":       {made[0], made[2], made[3]},
		"order=asc&metadata=colour%3D%2572%65d": {made[0], made[2], made[3]}, // quoted twice
		"order=asc&state=running":               made[:3],
		"order=asc&state=running,paused":        made,
		"state=paused":                          made[3:],
		"template=other":                        nil,
		"startedAfter=2999-01-01T00:00:00Z":     nil,
	} {
		if got, _ := get(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, order := range []string{"asc", "desc"} {
		var all []string
		token, removed := "", false
		for pages := 0; pages < 10; pages++ {
			ids, next := get("limit=1&order=" + order + "&nextToken=" + token)
			all = append(all, ids...)
			if next == "" {
				break
			}
			token = next
			if !removed && order == "desc" { // the one that the token names goes
				d.do(http.StatusNoContent, http.MethodDelete, "/sandboxes/"+ids[0], nil, nil)
				removed = true
			}
		}
		want := slices.Clone(made)
		if order == "desc" {
			slices.Reverse(want)
		}
		if !slices.Equal(all, want) {
			t.Errorf("pages %s: %v, want %v", order, all, want)
		}
	}
	for _, bad := range []string{"limit=x", "limit=0", "nextToken=x", "startedAfter=x", "metadata=%25zz"} {
		d.refuses(http.StatusBadRequest, "", http.MethodGet, "/v2/sandboxes?"+bad, nil)
	}
}

// TestSnapshotsForksAndProfilesAreTemplates costs half a second.
func TestSnapshotsForksAndProfilesAreTemplates(t *testing.T) {
	treetest.NeedRoot(t)
	profile := filepath.Join(treetest.Dir(t), "small.toml")
	if err := os.WriteFile(profile, []byte("[sandbox]\nnet = \"host\"\n[limits]\npids = 77\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, func(o *e2b.Options) { o.Templates = map[string]string{"small": profile} })
	s := d.create(nil)
	s.sh("echo one > f")
	var shot struct {
		SnapshotID string
		Names      []string
	}
	d.do(http.StatusCreated, http.MethodPost, "/sandboxes/"+s.SandboxID+"/snapshots", M{"name": "mine"}, &shot)
	if shot.SnapshotID != "mine" || !slices.Equal(shot.Names, []string{"mine"}) {
		t.Errorf("%+v", shot)
	}
	s.sh("echo two > f")
	var forks []struct {
		Sandbox *sandbox
		Error   M
	}
	d.do(http.StatusCreated, http.MethodPost, "/sandboxes/"+s.SandboxID+"/fork", M{"count": 2}, &forks)
	for _, f := range forks {
		f.Sandbox.d = d
		if got := f.Sandbox.dial().sh("cat f"); got != "two\n" || f.Sandbox.Token == s.Token {
			t.Errorf("a fork has %q", got)
		}
	}
	d.do(http.StatusNoContent, http.MethodDelete, "/sandboxes/"+s.SandboxID, nil, nil)
	if got := d.create(M{"templateID": "mine"}).sh("cat f"); got != "one\n" {
		t.Errorf("a sandbox of the snapshot has %q", got)
	}
	fork := forks[0].Sandbox
	d.do(http.StatusCreated, http.MethodPost, "/sandboxes/"+fork.SandboxID+"/snapshots", M{"name": "mine"}, nil)
	if got := d.create(M{"templateID": "mine:default"}).sh("cat f"); got != "two\n" {
		t.Errorf("a sandbox of the new snapshot has %q", got)
	}
	d.refuses(http.StatusConflict, "no snapshot", http.MethodPost, "/sandboxes/"+fork.SandboxID+"/snapshots", M{"name": fork.SandboxID})
	d.refuses(http.StatusBadRequest, "name", http.MethodPost, "/sandboxes/"+fork.SandboxID+"/snapshots", M{"name": "../x"})
	d.refuses(http.StatusNotFound, "", http.MethodDelete, "/templates/"+fork.SandboxID, nil)
	d.refuses(http.StatusNotFound, "was not found", http.MethodGet, "/sandboxes/mine", nil)
	var list []M
	if d.do(http.StatusOK, http.MethodGet, "/snapshots", nil, &list); len(list) != 1 || list[0]["snapshotID"] != "mine" {
		t.Errorf("snapshots: %v", list)
	}
	d.do(http.StatusOK, http.MethodGet, "/templates/aliases/mine", nil, nil)
	d.do(http.StatusNoContent, http.MethodDelete, "/templates/mine", nil, nil)
	d.refuses(http.StatusNotFound, "no template", http.MethodPost, "/v2/sandboxes", M{"templateID": "mine"})
	d.refuses(http.StatusNotFound, "", http.MethodDelete, "/templates/mine", nil)
	small := d.create(M{"templateID": "small"})
	e, err := d.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := e.Catalog().Get(small.SandboxID); err != nil || rec.Policy.Limits.PIDs != 77 || rec.Policy.Network != "none" {
		t.Errorf("a sandbox of the profile: %+v, %v", rec.Policy, err)
	}
	// A person's sandbox is a template, and no route acts on it.
	if _, err := e.Fork(t.Context(), small.SandboxID, "", "person"); err != nil {
		t.Fatal(err)
	}
	d.create(M{"templateID": "person"})
	for _, path := range []string{"/sandboxes/person", "/templates/person"} {
		d.refuses(http.StatusNotFound, "", http.MethodDelete, path, nil)
	}
}

// TestTheTimeOutEndsASandbox: also one in which a command runs, whose client gets the reason. Cost: 1.5 s.
func TestTheTimeOutEndsASandbox(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(M{"timeout": 1})
	quiet := d.create(M{"timeout": 1, "autoPause": true, "autoResume": M{"enabled": true}})
	if _, err := s.run(shell("sleep 60")); err == nil || !strings.Contains(err.Error(), "unavailable") {
		t.Errorf("the command's client gets %v", err)
	}
	d.refuses(http.StatusNotFound, "was not found", http.MethodGet, "/sandboxes/"+s.SandboxID, nil)
	d.soon("the other sandbox is paused", func() bool {
		var info struct{ State string }
		d.do(http.StatusOK, http.MethodGet, "/sandboxes/"+quiet.SandboxID, nil, &info)
		return info.State == "paused"
	})
	if got := quiet.sh("cat a"); got != "real" {
		t.Errorf("after it was resumed by a request: %q", got)
	}
}

// TestTheOperatorsLimitsAreBounds: of time, of what a later server with narrower flags allows, and of the network.
func TestTheOperatorsLimitsAreBounds(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t, func(o *e2b.Options) {
		o.Rules.Policy.Network = "allow:a.example,b.example"
		o.Rules.Policy.Limits.RemoveAfter, o.MaxTimeout = time.Hour, 10*time.Hour
	})
	s := d.create(M{"timeout": 7200})
	pausing := d.create(M{"timeout": 60, "autoPause": true, "allow_internet_access": false})
	narrow := d.create(M{"network": M{"allowOut": []string{"b.example", "c.example"}, "denyOut": []string{"0.0.0.0/0"}}})
	e, err := d.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end := func(id string) (time.Duration, string) {
		rec, err := e.Catalog().Get(id)
		if err != nil {
			t.Fatal(err)
		}
		return rec.Policy.Limits.RemovalAge(), rec.Policy.Network
	}
	for id, network := range map[string]string{s.SandboxID: "allow:a.example,b.example", pausing.SandboxID: "none", narrow.SandboxID: "allow:b.example"} {
		got, net := end(id)
		if got > time.Hour || net != network {
			t.Errorf("removed at %v, network %s, want %s", got, net, network)
		}
	}
	d.do(http.StatusNoContent, http.MethodPost, "/sandboxes/"+s.SandboxID+"/timeout", M{"timeout": 36000}, nil)
	d.do(http.StatusNoContent, http.MethodPost, "/sandboxes/"+s.SandboxID+"/pause", nil, nil)
	if got, _ := end(s.SandboxID); got > time.Hour {
		t.Errorf("after a longer time-out and a pause it is removed at %v", got)
	}
	path := "/sandboxes/" + narrow.SandboxID + "/network"
	d.do(http.StatusNoContent, http.MethodPut, path, M{}, nil)
	if _, net := end(narrow.SandboxID); !strings.Contains(net, "a.example") || !strings.Contains(net, "b.example") {
		t.Errorf("the widened network is %s", net)
	}
	d.do(http.StatusOK, http.MethodGet, "/sandboxes/"+narrow.SandboxID, nil, nil)
	d.refuses(http.StatusBadRequest, "only grow", http.MethodPut, path, M{"allow_internet_access": false})
	if _, err := e.Supervise.SetLimits(t.Context(), pausing.SandboxID, func(l *catalog.Limits) error { l.PIDs = 50; return nil }); err != nil {
		t.Fatal(err)
	}
	d.do(http.StatusOK, http.MethodGet, "/sandboxes/"+pausing.SandboxID, nil, nil)
	strict := newServer(t, d, func(o *e2b.Options) { o.Rules.Policy.Limits.Memory = 1 << 30 })
	strict.refuses(http.StatusForbidden, "memory", http.MethodGet, "/sandboxes/"+pausing.SandboxID, nil)
	strict.refuses(http.StatusForbidden, "memory", http.MethodPost, "/v2/sandboxes", M{"templateID": pausing.SandboxID})
}

// TestAKeyCreatesOneSandbox: a client that repeats its request after a lost reply gets the same sandbox.
func TestAKeyCreatesOneSandbox(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	ids := make(chan string, 4)
	for range 4 {
		go func() {
			var s sandbox
			d.do(http.StatusCreated, http.MethodPost, "/v2/sandboxes", M{}, &s, "Idempotency-Key", "k1")
			ids <- s.SandboxID
		}()
	}
	first := <-ids
	for range 3 {
		if id := <-ids; id != first {
			t.Errorf("two sandboxes for one key: %s and %s", first, id)
		}
	}
}
