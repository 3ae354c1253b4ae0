package e2b

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/hostinfo"
)

// A metric is how much of the processors, the memory and the disk a sandbox uses at a time, in E2B's form.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// A usageSample is how much processor time a sandbox had used at a time. The next request for metrics
// computes the share since then.
type usageSample struct {
	at  time.Time
	cpu time.Duration
}

// firstSample is how long the first request for a sandbox's usage waits between two samples of the processor
// time, from which it computes the share of the processors used.
const firstSample = 50 * time.Millisecond

// hostMemory returns the size of this machine's memory in bytes: what a sandbox without a limit can use.
func hostMemory() int64 {
	total, _, err := hostinfo.Memory()
	if err != nil {
		return 0 // a client divides by it at most
	}
	return total
}

// measure returns the processors, memory and disk that the sandbox b uses now. One that does not run uses
// none.
func (s *Server) measure(ctx context.Context, b *opened) (metric, error) {
	d := b.describe()
	m := metric{CPUCount: d.CPUCount, MemTotal: d.MemoryMB << 20, DiskTotal: d.DiskSizeMB << 20}
	u, err := b.e.Supervise.UsageOf(ctx, b.Name)
	if errors.Is(err, errs.ErrBusy) {
		u, err = nil, nil
	}
	if err != nil {
		return m, err
	}
	if u != nil && u.CPUTime != nil {
		if m.CPUUsedPct, u, err = s.share(ctx, b, u, m.CPUCount); err != nil {
			return m, err
		}
	}
	m.Timestamp = time.Now().UTC()
	m.TimestampUnix = m.Timestamp.Unix()
	if u != nil {
		m.MemUsed, m.DiskUsed = valueOf(u.Memory), valueOf(u.Disk)
		if u.DiskLimit != nil {
			m.DiskTotal = *u.DiskLimit
		}
	}
	return m, nil
}

func valueOf(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

// share returns the share of cpus processors, in percent, that the sandbox b has used since the last request
// for metrics. u is its present usage; the result may be a newer one.
func (s *Server) share(ctx context.Context, b *opened, u *supervise.Usage, cpus int) (float64, *supervise.Usage, error) {
	r, now := s.resourcesOf(b), time.Now()
	r.mu.Lock()
	last := r.usage
	r.mu.Unlock()
	if last.at.IsZero() || *u.CPUTime < last.cpu {
		last = usageSample{now, *u.CPUTime}
		select {
		case <-time.After(firstSample):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
		again, err := b.e.Supervise.UsageOf(ctx, b.Name)
		if err != nil || again == nil || again.CPUTime == nil {
			return 0, again, err
		}
		u, now = again, time.Now()
	}
	r.mu.Lock()
	r.usage = usageSample{now, *u.CPUTime}
	r.mu.Unlock()
	passed := now.Sub(last.at)
	if passed <= 0 {
		return 0, u, nil
	}
	pct := 100 * float64(*u.CPUTime-last.cpu) / float64(passed) / float64(cpus)
	return min(max(pct, 0), 100), u, nil
}

// metrics handles a request for the metrics of a sandbox. It answers with one entry: the present usage.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	m, err := s.measure(r.Context(), b)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []metric{m})
	return nil
}

// allMetrics handles a request for the present usage of several sandboxes, which the query names.
func (s *Server) allMetrics(w http.ResponseWriter, r *http.Request) error {
	ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
	list, err := s.all(r.Context())
	if err != nil {
		return err
	}
	out := map[string]metric{}
	for _, b := range list {
		if b.meta.Snapshot || !slices.Contains(ids, b.Name) {
			continue
		}
		if out[b.Name], err = s.measure(r.Context(), b); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": out})
	return nil
}

// envdMetrics handles a request for the present usage of a sandbox that a client sends to E2B's program in
// the sandbox (envd).
func (s *Server) envdMetrics(w http.ResponseWriter, r *http.Request) {
	m, err := s.measure(r.Context(), sandboxOf(r.Context()))
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": m.TimestampUnix, "cpu_count": runtime.NumCPU(), "cpu_used_pct": m.CPUUsedPct, "mem_total": m.MemTotal,
		"mem_used": m.MemUsed, "disk_used": m.DiskUsed, "disk_total": m.DiskTotal,
	})
}
