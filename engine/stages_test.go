package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/policy"
)

// stageNames are those of the profile that these tests promote through: one that
// only checks, the workspace itself, and three directories beside it.
func stageNames() []string { return []string{"sandbox", "dev", "test", "staging", "production"} }

// place is the directory of a stage.
func (b *bench) place(stage string) string {
	if stage == "sandbox" || stage == "dev" {
		return b.workspace
	}
	return filepath.Join(filepath.Dir(b.workspace), "targets", stage)
}

// profile writes one, in which extra says more of some stages.
func (b *bench) profile(extra map[string]string) *policy.Profile {
	b.t.Helper()
	var text strings.Builder
	for _, name := range stageNames() {
		text.WriteString("[[stage]]\nname = \"" + name + "\"\n")
		if name != "sandbox" {
			text.WriteString("target = \"" + b.place(name) + "\"\n")
		}
		more := extra[name]
		if !strings.Contains(more, "before") {
			more += "\nbefore = [\"grep -q new conf && test ! -e gone\"]"
		}
		if !strings.Contains(more, "after") && name != "sandbox" {
			more += "\nafter = [\"grep -q new conf && test ! -e gone\"]"
		}
		text.WriteString(more + "\n")
	}
	p, err := policy.Parse(filepath.Join(b.workspace, policy.Name), []byte(text.String()))
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// line sets a workspace up, with its targets, and a sandbox "s" that changes it.
// Each target has an edit of its own, which must stay.
func (b *bench) line() {
	b.t.Helper()
	b.write("conf", lines(12, nil))
	b.write("gone", "0")
	for _, name := range stageNames()[2:] {
		dir := b.place(name)
		if err := errors.Join(
			os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "conf"), []byte(lines(12, map[int]string{10: name + "\n"})), 0o644),
			os.WriteFile(filepath.Join(dir, "gone"), []byte("0"), 0o644),
			os.WriteFile(filepath.Join(dir, "own"), []byte(name), 0o644),
		); err != nil {
			b.t.Fatal(err)
		}
	}
	tick()
	b.new("s")
	b.in("s", "sed -i 's/line b/new/' conf; rm gone; mkdir d; printf 2 > d/added")
	if err := b.Stop(b.t.Context(), "s"); err != nil {
		b.t.Fatal(err)
	}
	b.changed("s", "", "")
	tick()
}

// stands checks what a stage's directory holds: what it was, or what the sandbox
// made of it.
func (b *bench) stands(stage string, promoted bool) {
	b.t.Helper()
	if stage == "sandbox" {
		return
	}
	but := map[int]string{}
	if stage != "dev" {
		but[10] = stage + "\n"
		if own, err := os.ReadFile(filepath.Join(b.place(stage), "own")); err != nil || string(own) != stage {
			b.t.Errorf("%s: its own file holds %q, %v", stage, own, err)
		}
	}
	if promoted {
		but[1] = "new\n"
	}
	conf, err := os.ReadFile(filepath.Join(b.place(stage), "conf"))
	if want := lines(12, but); err != nil || string(conf) != want {
		b.t.Errorf("%s, promoted %v: conf is %q, want %q, %v", stage, promoted, conf, want, err)
	}
	for name, there := range map[string]bool{"gone": !promoted, "d/added": promoted, "d": promoted} {
		if _, err := os.Lstat(filepath.Join(b.place(stage), name)); (err == nil) != there {
			b.t.Errorf("%s, promoted %v: %s: %v", stage, promoted, name, err)
		}
	}
	list, err := os.ReadDir(b.place(stage))
	for _, entry := range list {
		if strings.HasPrefix(entry.Name(), ".snapfs-apply-") && !promoted {
			b.t.Errorf("%s: left: %s", stage, entry.Name())
		}
	}
	if err != nil {
		b.t.Error(err)
	}
}

func TestStagesArePromotedInOrder(t *testing.T) { everywhere(t, stagesArePromotedInOrder) }

func stagesArePromotedInOrder(t *testing.T, b *bench) {
	b.line()
	profile := b.profile(nil)
	p, err := b.PromoteStages(t.Context(), "s", engine.StageOptions{Profile: profile, To: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if p.State != engine.PipelineDone || len(p.Stages) != 3 {
		t.Errorf("%+v", p)
	}
	for i, name := range stageNames() {
		b.stands(name, i <= 2)
	}
	// Going further goes over those that are done, where there is nothing to do.
	if p, err = b.PromoteStages(t.Context(), "s", engine.StageOptions{Profile: profile, To: "production"}); err != nil {
		t.Fatal(err)
	}
	for i, name := range stageNames() {
		b.stands(name, true)
		if s := p.Stages[i]; s.State != engine.StageDone || (s.Promotion != "") != (i >= 3) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	b.sound("promoted")
}
