package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/policy"
)

// TestAPersonIsShownThePlanOfAStageAndAsked: no carries nothing, and waits; yes
// carries exactly that.
func TestAPersonIsShownThePlanOfAStageAndAsked(t *testing.T) { asRoot(t, asked) }

func TestAPersonIsShownThePlanOfAStageAndAskedAsAnOrdinaryUser(t *testing.T) { asUserLater(t, asked) }

func asked(t *testing.T) {
	b := newDesk(t)
	target := filepath.Join(filepath.Dir(b.workspace), "target")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(filepath.Dir(b.workspace), policy.Name)
	if err := os.WriteFile(profile, []byte("[[stage]]\nname = \"dev\"\ntarget = \"target\"\napproval = \"ask\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.snapfs("new", "box").want(0)
	b.snapfs("exec", "box", "--", "sh", "-c", "echo x > fresh").want(0)
	for _, answer := range []string{"n", "y"} {
		args := []string{"promote", "box", "--to", "dev", "--profile", profile}
		if answer == "y" {
			args = []string{"promote", "--continue"}
		}
		p := sit(t, b, args...)
		p.sees("fresh")
		p.sees("approve stage dev? [y/n]")
		p.types(answer + "\n")
		status := p.leaves()
		_, err := os.Lstat(filepath.Join(target, "fresh"))
		if want := map[string]int{"n": exitWaiting, "y": 0}[answer]; status != want || (err == nil) != (answer == "y") {
			t.Errorf("answer %s: status %d, %v", answer, status, err)
		}
	}
	b.real()
}

// TestTheExampleOfTheDocumentsIsAProfile: what help shows can be used.
func TestTheExampleOfTheDocumentsIsAProfile(t *testing.T) {
	p, err := policy.Parse("/w/"+policy.Name, []byte(profileExample))
	if err != nil || strings.Join(p.Names(), " ") != "sandbox staging production" {
		t.Errorf("%+v, %v", p, err)
	}
}
